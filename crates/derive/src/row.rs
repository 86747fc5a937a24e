//! The expansion of `#[derive(Row)]`.
//!
//! Two checks make the generated `unsafe` sound. The macro refuses everything that it can see in
//! the tokens: a missing `repr(C)`, generics, unnamed fields. The compiler checks the rest by
//! constants and bounds in the generated code, because only the compiler knows sizes and types:
//! every field is plain data, fields follow each other without a gap, and no alignment is above 8.

use std::collections::HashMap;

use proc_macro_crate::{FoundCrate, crate_name};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Error, Expr, ExprLit, Field, Fields, Lit, Meta, Result, Type};

/// A field that becomes a column.
struct Column<'a> {
    field: &'a Field,
    ident: &'a Ident,
    /// The field's name, without `r#`.
    name: String,
    constant: Ident,
    group: u32,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    refuse_generics(input)?;
    let fields = named_fields(input)?;
    require_repr_c(input)?;
    let columns = columns(fields)?;
    groups_stand_together(&columns)?;
    let private = private_module(input.ident.span())?;
    let checks = checks(&input.ident, &columns, &private);
    let implementation = implementation(&input.ident, &columns, &private);
    let constants = constants(&input.ident, &columns, &private);
    Ok(quote! { #checks #implementation #constants })
}

fn refuse_generics(input: &DeriveInput) -> Result<()> {
    if input.generics.params.is_empty() {
        return Ok(());
    }
    Err(Error::new_spanned(&input.generics, "a row has no type, lifetime or const parameters: its layout is one"))
}

fn named_fields(input: &DeriveInput) -> Result<impl Iterator<Item = &Field>> {
    let found = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => return Ok(fields.named.iter()),
            Fields::Unnamed(_) => "this struct's fields have no names",
            Fields::Unit => "this struct has no fields",
        },
        Data::Enum(_) => "this is an enum",
        Data::Union(_) => "this is a union",
    };
    Err(Error::new_spanned(
        &input.ident,
        format!("a row is a struct with named fields, which become its columns; {found}"),
    ))
}

fn require_repr_c(input: &DeriveInput) -> Result<()> {
    let mut is_c = false;
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            is_c |= meta.path.is_ident("C");
            // `align(8)` and `packed(4)` are accepted here: the checks of the layout see their
            // effects.
            if meta.input.peek(syn::token::Paren) {
                let argument;
                syn::parenthesized!(argument in meta.input);
                argument.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    if is_c {
        return Ok(());
    }
    Err(Error::new_spanned(
        &input.ident,
        "a row needs `#[repr(C)]`: without it the compiler may order the fields as it likes",
    ))
}

fn columns<'a>(fields: impl Iterator<Item = &'a Field>) -> Result<Vec<Column<'a>>> {
    let mut columns = Vec::new();
    let mut taken: HashMap<String, &Ident> = HashMap::new();
    let mut errors: Option<Error> = None;
    for field in fields {
        let Some(ident) = &field.ident else { continue };
        match column(field, ident) {
            Ok(column) => {
                if let Some(first) = taken.insert(column.constant.to_string(), ident) {
                    let message =
                        format!("the columns `{first}` and `{ident}` would both be the constant `{}`", column.constant);
                    collect(&mut errors, Error::new_spanned(ident, message));
                }
                columns.push(column);
            }
            Err(error) => collect(&mut errors, error),
        }
    }
    errors.map_or(Ok(columns), Err)
}

/// Checks that the columns of each group follow each other, since a group is a run of words.
fn groups_stand_together(columns: &[Column]) -> Result<()> {
    for (position, column) in columns.iter().enumerate().skip(1) {
        let begins = columns[position - 1].group != column.group;
        if begins && columns[..position].iter().any(|earlier| earlier.group == column.group) {
            let message = format!(
                "the columns of group {} do not stand together: another group's stand before `{}`",
                column.group, column.name
            );
            return Err(Error::new_spanned(column.ident, message));
        }
    }
    Ok(())
}

fn collect(errors: &mut Option<Error>, error: Error) {
    match errors {
        Some(errors) => errors.combine(error),
        None => *errors = Some(error),
    }
}

fn column<'a>(field: &'a Field, ident: &'a Ident) -> Result<Column<'a>> {
    let name = ident.unraw().to_string();
    // An identifier in capitals need not be an identifier: some letters have no capital that may
    // stand in one.
    let constant = syn::parse_str::<Ident>(&name.to_uppercase())
        .map_err(|_| Error::new_spanned(ident, "this name in capitals, the column's constant, is not a name"))?;
    refuse_known_types(&field.ty, &name)?;
    let constant = Ident::new(&constant.to_string(), ident.span());
    Ok(Column { field, ident, name, constant, group: group(field)? })
}

/// Refuses the types that users try first, with an error that names a way out. The compiler refuses
/// all others by a bound.
fn refuse_known_types(field_type: &Type, name: &str) -> Result<()> {
    let way_out = match field_type {
        Type::Reference(_) | Type::Ptr(_) => "it points to memory elsewhere; use an array of bytes, such as `[u8; 16]`",
        Type::Path(path) => match path.path.segments.last().map(|last| last.ident.to_string()).as_deref() {
            Some("bool") => "not every byte is a `bool`; use `u8`",
            Some("char") => "not every number is a `char`; use `u32`",
            Some("String" | "Vec" | "Box" | "Rc" | "Arc" | "Cow") => {
                "it points to memory elsewhere; use an array, such as `[u8; 16]`"
            }
            Some("Option") => "not every bit pattern is an `Option`; use a value that means none",
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    Err(Error::new_spanned(field_type, format!("the column `{name}` is not plain data: {way_out}")))
}

/// The same limit as in the engine. If the two differed, the generated code would not compile.
const GROUPS_MAX: u32 = 16;

/// Returns the number in `#[group = N]`; 0 without it.
fn group(field: &Field) -> Result<u32> {
    let mut attributes = field.attrs.iter().filter(|attribute| attribute.path().is_ident("group"));
    let Some(attribute) = attributes.next() else { return Ok(0) };
    if let Some(second) = attributes.next() {
        return Err(Error::new_spanned(second, "a column is in one group only"));
    }
    group_number(attribute)
        .filter(|&group| group < GROUPS_MAX)
        .ok_or_else(|| Error::new_spanned(attribute, "a group is a number from 0 to 15: `#[group = 1]`"))
}

fn group_number(attribute: &Attribute) -> Option<u32> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) = &pair.value else { return None };
    number.base10_parse().ok()
}

/// Returns the path to the crate whose names the generated code uses. The user depends on the
/// facade, on the engine, or on the vocabulary alone.
fn private_module(span: Span) -> Result<TokenStream> {
    for package in ["contend", "contend-model", "contend-engine"] {
        let found = match crate_name(package) {
            Ok(FoundCrate::Name(name)) => Ident::new(&name, span),
            // These crates know themselves by their own names, so this also serves their examples
            // and doctests.
            Ok(FoundCrate::Itself) => Ident::new(&package.replace('-', "_"), span),
            Err(_) => continue,
        };
        return Ok(quote!(::#found::__private));
    }
    Err(Error::new(
        span,
        "`#[derive(Row)]` needs `contend`, `contend-engine` or `contend-model` among the dependencies in Cargo.toml",
    ))
}

/// Returns the place where an error in generated code is shown. The code itself stays the macro's,
/// so that the lints of the user's crate, such as `unsafe_code`, do not judge it.
fn generated_at(place: Span) -> Span {
    Span::call_site().located_at(place)
}

/// Returns the checks that the compiler has to make. The span of each check is the code that the
/// user can change.
fn checks(row: &Ident, columns: &[Column], private: &TokenStream) -> TokenStream {
    let zerocopy = quote!(#private::zerocopy);
    let plain = columns.iter().map(|column| {
        let field_type = &column.field.ty;
        quote_spanned!(generated_at(field_type.span())=> columns_are_plain_data::<#field_type>();)
    });
    let idents: Vec<&Ident> = columns.iter().map(|column| column.ident).collect();
    let types: Vec<&Type> = columns.iter().map(|column| &column.field.ty).collect();
    let locals: Vec<Ident> = (0..columns.len()).map(|position| format_ident!("field_{position}")).collect();
    let gaps = columns.iter().enumerate().map(|(position, column)| {
        let (ident, behind) = (column.ident, end_of(row, columns[..position].last()));
        let message = format!(
            "padding before the column `{}`: order the columns from the largest alignment down, or fill the gap with \
             an array of bytes",
            column.name
        );
        quote_spanned! {generated_at(ident.span())=>
            const _: () = ::core::assert!(
                ::core::mem::offset_of!(#row, #ident) == #behind,
                #message
            );
        }
    });
    let shared_words = columns.windows(2).filter(|pair| pair[0].group != pair[1].group).map(|pair| {
        let ident = pair[1].ident;
        let message = format!(
            "the column `{}` begins group {} inside of a word of 8 bytes that the group before it has begun: groups are \
             read and written apart, in whole words; put an array of bytes before it",
            pair[1].name, pair[1].group
        );
        quote_spanned! {generated_at(ident.span())=>
            const _: () = ::core::assert!(::core::mem::offset_of!(#row, #ident) % 8 == 0, #message);
        }
    });
    let last = end_of(row, columns.last());
    let end = format!("padding behind the last column of the row `{row}`: fill it with an array of bytes");
    let aligned = format!("the row `{row}` is aligned to more than 8 bytes");
    quote_spanned! {generated_at(row.span())=>
        const _: () = {
            const fn columns_are_plain_data<T>()
            where
                T: #zerocopy::FromBytes + #zerocopy::IntoBytes + #zerocopy::Immutable,
            {
            }
            #(#plain)*
        };
        // The struct has exactly these fields, of these types, whatever other macros made of it.
        const _: fn(#row) = |row| {
            let #row { #(#idents: #locals),* } = row;
            #(let _: #types = #locals;)*
        };
        #(#gaps)*
        #(#shared_words)*
        const _: () = ::core::assert!(::core::mem::size_of::<#row>() == #last, #end);
        const _: () = ::core::assert!(::core::mem::align_of::<#row>() <= 8, #aligned);
    }
}

/// Returns the first byte behind a column; 0 behind none.
fn end_of(row: &Ident, column: Option<&Column>) -> TokenStream {
    column.map_or(quote!(0), |Column { field, ident, .. }| {
        let field_type = &field.ty;
        quote!(::core::mem::offset_of!(#row, #ident) + ::core::mem::size_of::<#field_type>())
    })
}

fn implementation(row: &Ident, columns: &[Column], private: &TokenStream) -> TokenStream {
    let name = row.unraw().to_string();
    let infos = columns.iter().map(|Column { field, ident, name, group, .. }| {
        let field_type = &field.ty;
        quote! {
            #private::ColumnInfo {
                name: #name,
                offset: ::core::mem::offset_of!(#row, #ident),
                size: ::core::mem::size_of::<#field_type>(),
                group: #group,
                type_path: ::core::any::type_name::<#field_type>,
            }
        }
    });
    quote_spanned! {generated_at(row.span())=>
        // SAFETY: the type is `repr(C)`, has no padding, plain fields and an alignment of 8 at
        // most. The macro has seen that, or the checks above prove it.
        #[automatically_derived]
        unsafe impl #private::Row for #row {
            const NAME: &'static str = #name;
            const COLUMNS: &'static [#private::ColumnInfo] = &[#(#infos),*];
        }
    }
}

fn constants(row: &Ident, columns: &[Column], private: &TokenStream) -> TokenStream {
    let constants = columns.iter().map(|Column { field, ident, name, constant, group }| {
        let (visibility, field_type) = (&field.vis, &field.ty);
        let docs: Vec<&Attribute> = field.attrs.iter().filter(|attribute| attribute.path().is_ident("doc")).collect();
        let docs = if docs.is_empty() {
            let doc = format!("The column `{name}`.");
            quote!(#[doc = #doc])
        } else {
            quote!(#(#docs)*)
        };
        quote_spanned! {generated_at(ident.span())=>
            #docs
            #visibility const #constant: #private::Column<#row, #field_type> =
                // SAFETY: the row has this field of this type, and it is plain data by the checks
                // above.
                unsafe { #private::Column::new(::core::mem::offset_of!(#row, #ident), #group) };
        }
    });
    quote_spanned! {generated_at(row.span())=>
        #[allow(dead_code, reason = "not every column is named by those who use the row")]
        impl #row {
            #(#constants)*
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(tokens: TokenStream) -> String {
        let input = syn::parse2(tokens).expect("an item");
        expand(&input).expect_err("refused").to_string()
    }

    #[test]
    fn all_columns_with_errors_are_named() {
        let input = syn::parse2(quote! {
            #[repr(C)]
            struct Two { open: bool, name: String }
        });
        let error = expand(&input.expect("an item")).expect_err("refused");
        assert_eq!(error.into_iter().count(), 2);
    }

    #[test]
    fn repr_is_found_among_others() {
        let message = error_of(quote! { #[repr(align(8))] struct Row { a: u64 } });
        assert!(message.contains("repr(C)"), "{message}");
        for repr in [quote!(C), quote!(C, align(8)), quote!(packed(4), C)] {
            let input = syn::parse2(quote! { #[repr(#repr)] struct Row { a: u64 } }).expect("an item");
            require_repr_c(&input).expect("has repr(C)");
        }
    }
}
