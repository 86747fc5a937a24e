//! [`AnyProtocol`]: a protocol that the program chooses by its name at run time.

use contend_engine::{Erased, NamedProtocol, OptionError, Options};
use contend_machine::Native;
use contend_protocols::{ProtocolVisitor, all_protocols, on_host, with_protocol};

use crate::builder::Builder;
use crate::error::Error;

/// A registered protocol behind a pointer; see [`Database::named`](crate::Database::named).
pub type AnyProtocol = Erased<Native>;

struct Make<'a> {
    options: &'a [(&'a str, &'a str)],
}

impl ProtocolVisitor<Native> for Make<'_> {
    type Output = Result<Builder<AnyProtocol>, OptionError>;

    fn visit<P: NamedProtocol<Native>>(self) -> Self::Output {
        let mut options = P::options_with_snapshots();
        for (name, value) in self.options {
            options.set(name, value)?;
        }
        let protocol = on_host(P::INFO.name, &options).expect("it is registered, and has these options");
        Ok(Builder::of::<P>(protocol))
    }
}

pub(crate) fn builder(name: &str, options: &[(&str, &str)]) -> Result<Builder<AnyProtocol>, Error> {
    let Some(builder) = with_protocol::<Native, _>(name, Make { options }) else {
        let valid: Vec<&str> = all_protocols::<Native>().iter().map(|(info, _)| info.name).collect();
        return Err(Error::UnknownProtocol { name: name.to_owned(), valid: valid.join(", ") });
    };
    Ok(builder?)
}
