//! Expressions of scripts, compiled to steps.

use std::num::NonZeroU64;

use contend_model::counted;
use rustc_hash::FxHashMap;
use sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, Spanned,
    UnaryOperator, Value,
};

use super::draws::{Distribution, step_of};
use super::error::{Mistake, Place, Read, mistake, unknown};
use super::instead;
use super::program::{CLIENT, Code, FOUND, FRAME_MAX, Operator, ROW, Register, Step, VARIABLES_MAX};
use super::schema::{Column, NUMBER, Table, Type, name_of, simple_name};
use super::source::Parameters;
use crate::zipf::Zipf;

/// The functions of the language, for messages.
const FUNCTIONS: &str = "random, random_exponential, random_gaussian, random_zipfian, zipf, latest, nurand, empirical, \
                         permute, unique, distinct, rows, abs, least, greatest, mod, random_text and random_bytes (in values)";

/// The skew of `latest` without an argument: YCSB's.
const LATEST_SKEW: f64 = 0.99;

/// A variable of a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variable {
    pub(super) register: Register,
    pub(super) of: Type,
}

/// What an expression may name besides variables.
pub(super) enum Names<'a> {
    /// Nothing.
    None,
    /// The columns of a table, whose values are read to registers.
    Columns(&'a mut dyn FnMut(&Ident) -> Read<(Register, Type)>),
}

/// Writes code.
pub(super) struct Writer<'a> {
    pub(super) code: Code,
    pub(super) tables: &'a [Table],
    /// The loaded rows of each table.
    pub(super) rows: &'a [u64],
    pub(super) parameters: &'a Parameters,
    pub(super) variables: FxHashMap<String, Variable>,
    /// The values of registers that no step changes.
    constants: FxHashMap<Register, i64>,
    /// The registers of constants.
    constant_at: FxHashMap<i64, Register>,
    /// The place of the statement that is being compiled.
    pub(super) at: Place,
    /// Whether `:row` is there: in the expressions of `[fill]`.
    pub(super) fills: bool,
    /// Whether the script may read `:found`.
    pub(super) reads_found: bool,
    /// The register of `:found`.
    pub(super) found: Register,
}

impl<'a> Writer<'a> {
    pub(super) fn new(tables: &'a [Table], rows: &'a [u64], parameters: &'a Parameters) -> Self {
        Writer {
            code: Code { image: vec![0; usize::from(ROW) + 1], foreseeable: true, ..Code::default() },
            tables,
            rows,
            parameters,
            variables: FxHashMap::default(),
            constants: FxHashMap::default(),
            constant_at: FxHashMap::default(),
            at: Place { line: 1, column: 1 },
            fills: false,
            reads_found: false,
            found: FOUND,
        }
    }

    pub(super) fn push(&mut self, step: Step) {
        self.code.steps.push(step);
    }

    /// Returns the position of the next step.
    pub(super) fn here(&self) -> u32 {
        self.code.steps.len() as u32
    }

    /// Returns the first of `words` new registers.
    pub(super) fn registers(&mut self, words: usize) -> Read<Register> {
        let first = self.code.image.len();
        if first + words > FRAME_MAX {
            return mistake(self.at, format!("the script needs more than {FRAME_MAX} words of memory"));
        }
        self.code.image.resize(first + words, 0);
        Ok(first as Register)
    }

    /// Returns the register that holds a constant.
    pub(super) fn constant(&mut self, value: i64) -> Read<Register> {
        if let Some(&register) = self.constant_at.get(&value) {
            return Ok(register);
        }
        let register = self.registers(1)?;
        self.code.image[register as usize] = value;
        self.constants.insert(register, value);
        self.constant_at.insert(value, register);
        Ok(register)
    }

    /// Returns the value of a register that no step changes.
    pub(super) fn value_of(&self, register: Register) -> Option<i64> {
        self.constants.get(&register).copied()
    }

    /// Returns the variable of this name, which is made if there is none.
    pub(super) fn variable(&mut self, at: Place, name: &str, of: Type) -> Read<Variable> {
        if let Some(&variable) = self.variables.get(name) {
            let is_number = |of| matches!(of, Type::Number(_));
            return match (variable.of, of) {
                (first, second) if is_number(first) && is_number(second) => Ok(variable),
                (Type::Text(first), Type::Text(second)) if second <= first => Ok(variable),
                (Type::Text(first), Type::Text(_)) => mistake(
                    at,
                    format!(
                        "variable :{name} has room for a text of {}, and here it is longer",
                        counted(first, "byte")
                    ),
                ),
                _ => mistake(at, format!("variable :{name} is a number in one place and a text in another")),
            };
        }
        if ["found", "client_id", "scale", "row"].contains(&name) || self.parameters.get(name).is_some() {
            return mistake(at, format!("':{name}' can't be set: it is a parameter of the file or of the run"));
        }
        if self.variables.len() == VARIABLES_MAX {
            return mistake(at, format!("variable :{name} is one too many; valid: up to {VARIABLES_MAX}"));
        }
        let variable = Variable { register: self.registers(of.words())?, of };
        self.variables.insert(name.to_owned(), variable);
        Ok(variable)
    }

    fn compute(&mut self, operator: Operator, a: Register, b: Register) -> Read<Register> {
        if let (Some(a), Some(b)) = (self.value_of(a), self.value_of(b)) {
            if b == 0 && matches!(operator, Operator::Divide | Operator::Modulo) {
                return mistake(self.at, "division by 0");
            }
            return self.constant(operator.apply(a, b));
        }
        if self.value_of(b) == Some(0) && matches!(operator, Operator::Divide | Operator::Modulo) {
            return mistake(self.at, "division by 0");
        }
        let to = self.registers(1)?;
        self.push(Step::Compute { operator, to, a, b });
        Ok(to)
    }

    /// Compiles an expression whose value is a number. Returns the register of its value.
    pub(super) fn number(&mut self, expression: &Expr, names: &mut Names<'_>) -> Read<Register> {
        let place = self.at.of(expression.span());
        match expression {
            Expr::Nested(inner) => self.number(inner, names),
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => match digits.parse::<i64>() {
                    Ok(number) => self.constant(number),
                    Err(_) if digits.contains('.') => mistake(place, instead::no_fraction(digits)),
                    Err(_) => mistake(place, format!("'{digits}' is no whole number of 64 bits")),
                },
                Value::Boolean(value) => self.constant(i64::from(*value)),
                Value::Placeholder(name) => self.named(place, name),
                other => mistake(place, format!("{other} is no whole number")),
            },
            Expr::Identifier(ident) => match names {
                Names::Columns(read) => match read(ident)? {
                    (register, Type::Number(_)) => Ok(register),
                    (_, Type::Text(_)) => mistake(place, format!("column {} is a text", name_of(ident))),
                },
                Names::None => {
                    let name = name_of(ident);
                    mistake(place, format!("'{name}' is a column, and no row is read here; a variable is ':{name}'"))
                }
            },
            Expr::UnaryOp { op, expr } => {
                let operand = self.number(expr, names)?;
                let zero = self.constant(0)?;
                match op {
                    UnaryOperator::Minus => self.compute(Operator::Subtract, zero, operand),
                    UnaryOperator::Plus => Ok(operand),
                    UnaryOperator::Not => self.compute(Operator::Equal, operand, zero),
                    _ => mistake(place, format!("operator '{op}' is not one of the language; valid: -, +, not")),
                }
            }
            Expr::BinaryOp { left, op, right } => self.binary(place, left, op, right, names),
            Expr::Between { expr, negated, low, high } => {
                let (value, low, high) =
                    (self.number(expr, names)?, self.number(low, names)?, self.number(high, names)?);
                let above = self.compute(Operator::AtMost, low, value)?;
                let below = self.compute(Operator::AtMost, value, high)?;
                let both = self.compute(Operator::And, above, below)?;
                let negated = self.constant(i64::from(*negated))?;
                self.compute(Operator::Unequal, both, negated)
            }
            Expr::Case { operand: None, conditions, else_result, .. } => {
                self.case(conditions, else_result.as_deref(), names)
            }
            Expr::Function(function) => self.function(place, function, names),
            other => {
                let valid = "numbers, :variables, operators, between, case, functions";
                let plain = || format!("'{other}' is not possible; valid: {valid}");
                mistake(place, instead::instead_of(other).unwrap_or_else(plain))
            }
        }
    }

    /// Compiles `case`: only the chosen result is computed.
    fn case(&mut self, conditions: &[CaseWhen], or_else: Option<&Expr>, names: &mut Names<'_>) -> Read<Register> {
        let to = self.registers(1)?;
        let mut ends = Vec::new();
        for case in conditions {
            let condition = self.number(&case.condition, names)?;
            let unless = self.code.steps.len();
            self.push(Step::Unless { condition, to: 0, by_rows: false });
            let before = self.code.steps.len();
            let result = self.number(&case.result, names)?;
            self.put_into(to, result, before);
            ends.push(self.code.steps.len());
            self.push(Step::Jump { to: 0, by_rows: false });
            self.aim(unless);
        }
        let before = self.code.steps.len();
        let result = match or_else {
            Some(result) => self.number(result, names)?,
            None => self.constant(0)?,
        };
        self.put_into(to, result, before);
        ends.into_iter().for_each(|step| self.aim(step));
        Ok(to)
    }

    /// Puts a word into another register. If the steps from `before` on have computed the word,
    /// they put it there at once.
    pub(super) fn put_into(&mut self, to: Register, from: Register, before: usize) {
        let is_variable = self.variables.values().any(|other| other.register == from);
        let own = self.code.steps[before..].iter_mut().filter(|_| !is_variable);
        // Where several branches compute it, each does so in its last step. So none of them reads
        // `to` behind that.
        let mut results: Vec<&mut Register> = own.filter_map(Step::result_mut).filter(|own| **own == from).collect();
        if results.is_empty() {
            self.push(Step::Copy { to, from, words: 1 });
        } else {
            results.iter_mut().for_each(|own| **own = to);
        }
    }

    fn binary(
        &mut self,
        place: Place,
        left: &Expr,
        op: &BinaryOperator,
        right: &Expr,
        names: &mut Names<'_>,
    ) -> Read<Register> {
        let compares = matches!(op, BinaryOperator::Eq | BinaryOperator::NotEq);
        if compares && (self.is_text(left) || self.is_text(right)) {
            let most = [left, right].map(|side| self.text_length(side)).into_iter().flatten().max().unwrap_or(1);
            let (a, b) = (self.text(left, most)?, self.text(right, most)?);
            let to = self.registers(1)?;
            self.push(Step::SameText { to, a, b });
            let expected = self.constant(i64::from(*op == BinaryOperator::Eq))?;
            return self.compute(Operator::Equal, to, expected);
        }
        let (a, b) = (self.number(left, names)?, self.number(right, names)?);
        let (operator, swapped) = match op {
            BinaryOperator::Plus => (Operator::Add, false),
            BinaryOperator::Minus => (Operator::Subtract, false),
            BinaryOperator::Multiply => (Operator::Multiply, false),
            BinaryOperator::Divide => (Operator::Divide, false),
            BinaryOperator::Modulo => (Operator::Modulo, false),
            BinaryOperator::Eq => (Operator::Equal, false),
            BinaryOperator::NotEq => (Operator::Unequal, false),
            BinaryOperator::Lt => (Operator::Less, false),
            BinaryOperator::LtEq => (Operator::AtMost, false),
            BinaryOperator::Gt => (Operator::Less, true),
            BinaryOperator::GtEq => (Operator::AtMost, true),
            BinaryOperator::And => (Operator::And, false),
            BinaryOperator::Or => (Operator::Or, false),
            BinaryOperator::PGBitwiseShiftLeft => (Operator::ShiftLeft, false),
            BinaryOperator::PGBitwiseShiftRight => (Operator::ShiftRight, false),
            BinaryOperator::PGBitwiseXor => (Operator::Xor, false),
            _ => {
                return mistake(
                    place,
                    format!(
                        "operator '{op}' is not one of the language; valid: + - * / % = <> < <= > >= and or << >> #"
                    ),
                );
            }
        };
        if swapped { self.compute(operator, b, a) } else { self.compute(operator, a, b) }
    }

    /// Returns the register of a named number: a variable, a parameter, or `:found` and its kin.
    fn named(&mut self, place: Place, placeholder: &str) -> Read<Register> {
        let name = placeholder.trim_start_matches(':').to_lowercase();
        match name.as_str() {
            "found" if !self.fills => return Ok(self.found),
            "client_id" if !self.fills => return Ok(CLIENT),
            "row" if self.fills => return Ok(ROW),
            _ => {}
        }
        if let Some(variable) = self.variables.get(&name) {
            return match variable.of {
                Type::Number(_) => Ok(variable.register),
                Type::Text(_) => mistake(place, format!("variable :{name} is a text")),
            };
        }
        match self.parameters.get(&name) {
            Some(number) if number.fract() == 0.0 && number.abs() <= 9e15 => self.constant(number as i64),
            Some(number) => mistake(
                place,
                format!(
                    "parameter {name} is {number}, no whole number; it can be the skew of a function only, and an \
                     amount is counted in its smallest unit"
                ),
            ),
            None => {
                let mut valid: Vec<&str> = self.variables.keys().map(String::as_str).collect();
                valid.sort_unstable();
                let own: &[&str] = if self.fills { &["row"] } else { &["found", "client_id"] };
                let parameters = self.parameters.names();
                let valid = valid.into_iter().chain(parameters).chain(own.iter().copied());
                unknown(place, "variable", &format!(":{name}"), valid).map_err(|mut mistake| {
                    let hint = instead::no_gset(&name, self.tables).filter(|_| !self.fills);
                    mistake.message += &hint.unwrap_or_default();
                    mistake
                })
            }
        }
    }

    fn function(&mut self, place: Place, function: &Function, names: &mut Names<'_>) -> Read<Register> {
        let (name, _) = simple_name(place, &function.name)?;
        let arguments = arguments_of(place, function)?;
        let count = |valid: std::ops::RangeInclusive<usize>| {
            if valid.contains(&arguments.len()) {
                return Ok(());
            }
            let (given, least, most) = (arguments.len(), valid.start(), valid.end());
            let valid = if least == most { least.to_string() } else { format!("{least} to {most}") };
            mistake(place, format!("{name} was given {}; valid: {valid}", contend_model::counted(given, "argument")))
        };
        match name.as_str() {
            "random" => {
                count(2..=2)?;
                self.range(place, &arguments, Distribution::Uniform, names)
            }
            "random_exponential" | "random_gaussian" | "random_zipfian" => {
                count(3..=3)?;
                self.skewed(place, &name, &arguments, names)
            }
            "zipf" => {
                count(2..=2)?;
                self.zipf(place, &arguments)
            }
            "latest" if !self.fills => {
                count(1..=2)?;
                self.latest(place, &arguments)
            }
            "nurand" => {
                count(3..=3)?;
                let a = self.fixed(arguments[0], "the first argument of nurand")?;
                let Some(a) = u64::try_from(a).ok().filter(|a| *a < 1 << 32) else {
                    return mistake(place, format!("the first argument of nurand is {a}; valid: from 0, below 2^32"));
                };
                self.range(place, &arguments[1..], Distribution::NonUniform { a, c: a / 3 }, names)
            }
            "empirical" => {
                count(1..=1)?;
                self.empirical(place, arguments[0])
            }
            "rows" => {
                count(1..=1)?;
                self.rows_of(place, arguments[0])
            }
            "unique" if !self.fills => {
                count(0..=0)?;
                let to = self.registers(1)?;
                self.push(Step::Unique { to });
                Ok(to)
            }
            "distinct" if !self.fills => {
                count(1..=1)?;
                let a = self.number(arguments[0], names)?;
                let to = self.registers(1)?;
                self.push(Step::Distinct { to, a });
                Ok(to)
            }
            "abs" | "mod" | "permute" | "least" | "greatest" => self.arithmetic(place, &name, &arguments, names),
            _ if random_text(function).is_some() => {
                mistake(place, format!("{name} draws a text, and a number was expected here"))
            }
            "avg" => mistake(place, instead::AVERAGE),
            _ => mistake(place, format!("unknown function '{name}'; valid: {FUNCTIONS}")),
        }
    }

    /// Compiles a function of numbers.
    fn arithmetic(&mut self, place: Place, name: &str, arguments: &[&Expr], names: &mut Names<'_>) -> Read<Register> {
        let operands: Vec<Register> =
            arguments.iter().map(|argument| self.number(argument, names)).collect::<Read<_>>()?;
        match (name, &operands[..]) {
            ("abs", &[a]) => self.compute(Operator::Absolute, a, a),
            ("mod", &[a, b]) => self.compute(Operator::Modulo, a, b),
            ("permute", &[a, b]) => self.compute(Operator::Permute, a, b),
            ("least" | "greatest", &[first, ref others @ ..]) => {
                let operator = if name == "least" { Operator::Least } else { Operator::Greatest };
                others.iter().try_fold(first, |result, &other| self.compute(operator, result, other))
            }
            _ => {
                let (given, valid) = (
                    operands.len(),
                    match name {
                        "abs" => "1",
                        "mod" | "permute" => "2",
                        _ => "1 or more",
                    },
                );
                mistake(
                    place,
                    format!("{name} was given {}; valid: {valid}", contend_model::counted(given, "argument")),
                )
            }
        }
    }

    /// Draws from one of pgbench's skewed distributions.
    fn skewed(&mut self, place: Place, name: &str, arguments: &[&Expr], names: &mut Names<'_>) -> Read<Register> {
        let parameter = self.skew(arguments[2])?;
        let (least, what) = match name {
            "random_exponential" => (0.0, "above 0"),
            "random_gaussian" => (2.0, "2 or more"),
            _ => (1.001, "1.001 or more (zipf has skews below 1)"),
        };
        let is_valid = if name == "random_exponential" { parameter > least } else { parameter >= least };
        if !is_valid || parameter > 1000.0 {
            return mistake(place, format!("the parameter of {name} is {parameter}; valid: {what}, up to 1000"));
        }
        let distribution = match name {
            "random_exponential" => Distribution::Exponential(parameter),
            "random_gaussian" => Distribution::Gaussian(parameter),
            _ => Distribution::Zipfian(parameter),
        };
        self.range(place, &arguments[..2], distribution, names)
    }

    /// Returns the skew of a function that draws as YCSB does.
    fn skew_of(&self, place: Place, name: &str, skew: &Expr) -> Read<f64> {
        let theta = self.skew(skew)?;
        if (0.0..1.0).contains(&theta) {
            return Ok(theta);
        }
        mistake(
            place,
            format!("the skew of {name} is {theta}; valid: from 0, below 1 (random_zipfian has skews above 1)"),
        )
    }

    /// Draws a row by its age: the newest is the most frequent.
    fn latest(&mut self, place: Place, arguments: &[&Expr]) -> Read<Register> {
        let table = self.named_table(place, "latest", arguments[0])?;
        let theta = arguments.get(1).map_or(Ok(LATEST_SKEW), |skew| self.skew_of(place, "latest", skew))?;
        let Table { name, key, columns, .. } = &self.tables[table];
        if key.len() > 1 || columns[key[0]].name == NUMBER {
            return mistake(place, format!("latest returns keys, and {name} has no primary key of one column"));
        }
        let Some(rows) = NonZeroU64::new(self.rows[table]) else {
            return mistake(place, format!("latest draws among the rows of {name}, which has no loaded row"));
        };
        let rank = self.draw(Distribution::Ranks(Zipf::new(rows.get(), theta)), 0, i64::MAX)?;
        let to = self.registers(1)?;
        self.push(Step::Latest { to, rank, table: table as u16 });
        self.code.latest.push(table as u16);
        Ok(to)
    }

    /// Draws by YCSB's skew.
    fn zipf(&mut self, place: Place, arguments: &[&Expr]) -> Read<Register> {
        let rows = self.fixed(arguments[0], "the first argument of zipf")?;
        let theta = self.skew_of(place, "zipf", arguments[1])?;
        let Some(records) = u64::try_from(rows).ok().filter(|rows| *rows > 0) else {
            return mistake(place, format!("zipf draws from {rows} numbers; valid: 1 or more"));
        };
        let zipf = Distribution::Zipf { zipf: Zipf::new(records, theta), step: step_of(records) };
        self.draw(zipf, 0, rows - 1)
    }

    /// Returns the number of loaded rows of a table.
    fn rows_of(&mut self, place: Place, table: &Expr) -> Read<Register> {
        let table = self.named_table(place, "rows", table)?;
        self.constant(self.rows[table] as i64)
    }

    /// Returns the table that an argument of `function` names.
    fn named_table(&self, place: Place, function: &str, table: &Expr) -> Read<usize> {
        let Expr::Identifier(ident) = table else {
            return mistake(place, format!("the argument of {function} is the name of a table"));
        };
        let name = name_of(ident);
        match self.tables.iter().position(|table| table.name == name && table.index_of.is_none()) {
            Some(table) => Ok(table),
            None => {
                let valid = self.tables.iter().filter(|table| table.index_of.is_none());
                unknown(place, "table", &name, valid.map(|table| table.name.as_str()))
            }
        }
    }

    /// Draws from a range that two arguments give.
    fn range(
        &mut self,
        place: Place,
        arguments: &[&Expr],
        distribution: Distribution,
        names: &mut Names<'_>,
    ) -> Read<Register> {
        let (low, high) = (self.number(arguments[0], names)?, self.number(arguments[1], names)?);
        let bounds = self.value_of(low).zip(self.value_of(high));
        if let Some((low, high)) = bounds.filter(|(low, high)| high < low) {
            return mistake(place, format!("the range from {low} to {high} is empty"));
        }
        let distribution = match (distribution, bounds) {
            (Distribution::Uniform, Some((low, high))) => Distribution::uniform(low, high),
            (other, _) => other,
        };
        self.draw_of(distribution, low, high)
    }

    fn draw(&mut self, distribution: Distribution, low: i64, high: i64) -> Read<Register> {
        let (low, high) = (self.constant(low)?, self.constant(high)?);
        self.draw_of(distribution, low, high)
    }

    fn draw_of(&mut self, distribution: Distribution, a: Register, b: Register) -> Read<Register> {
        let to = self.registers(1)?;
        let draw = u16::try_from(self.code.draws.len()).unwrap_or(u16::MAX);
        if draw == u16::MAX {
            return mistake(self.at, "the script draws at more than 65,534 places");
        }
        self.code.draws.push(distribution);
        self.push(Step::Draw { to, draw, a, b });
        Ok(to)
    }

    /// Returns the value of an expression that is known when the file is read.
    pub(super) fn fixed(&mut self, expression: &Expr, what: &str) -> Read<i64> {
        let place = self.at.of(expression.span());
        let register = self.number(expression, &mut Names::None)?;
        match self.value_of(register) {
            Some(value) => Ok(value),
            None => mistake(place, format!("{what} must follow from numbers, parameters and rows() alone")),
        }
    }

    /// Returns a skew: a number, which may have a fraction, or a parameter.
    fn skew(&self, expression: &Expr) -> Read<f64> {
        let place = self.at.of(expression.span());
        let skew = match expression {
            Expr::Nested(inner) => return self.skew(inner),
            Expr::Value(value) => match &value.value {
                Value::Number(digits, _) => digits.parse().ok(),
                Value::Placeholder(name) => self.parameters.get(&name.trim_start_matches(':').to_lowercase()),
                _ => None,
            },
            _ => None,
        };
        skew.ok_or_else(|| Mistake { place, message: format!("'{expression}' is no number and no parameter") })
    }

    /// Draws by frequencies: pairs `value:weight`, with commas between them.
    fn empirical(&mut self, place: Place, argument: &Expr) -> Read<Register> {
        let text = match argument {
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => text,
                _ => return mistake(place, "the argument of empirical is a text: 'value:weight, value:weight'"),
            },
            _ => return mistake(place, "the argument of empirical is a text: 'value:weight, value:weight'"),
        };
        let mut steps = Vec::new();
        let mut sum = 0.0;
        for pair in text.split(',') {
            let parts = pair.trim().split_once(':').unwrap_or((pair.trim(), "1"));
            let (Ok(value), Ok(weight)) = (parts.0.trim().parse::<i64>(), parts.1.trim().parse::<f64>()) else {
                return mistake(place, format!("'{}' is no pair of a number and a weight", pair.trim()));
            };
            if !(weight > 0.0 && weight.is_finite()) {
                return mistake(place, format!("the weight of {value} is {weight}; valid: above 0"));
            }
            sum += weight;
            steps.push((sum, value));
        }
        steps.iter_mut().for_each(|(end, _)| *end /= sum);
        self.draw(Distribution::Empirical(steps), i64::MIN, i64::MAX)
    }

    /// Whether an expression is a text.
    pub(super) fn is_text(&self, expression: &Expr) -> bool {
        self.text_length(expression).is_some()
    }

    /// Returns the most bytes of an expression that is a text.
    fn text_length(&self, expression: &Expr) -> Option<u32> {
        match expression {
            Expr::Nested(inner) => self.text_length(inner),
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => Some(text.len().max(1) as u32),
                Value::Null => Some(1),
                Value::Placeholder(name) => {
                    match self.variables.get(&name.trim_start_matches(':').to_lowercase())?.of {
                        Type::Text(bytes) => Some(bytes),
                        Type::Number(_) => None,
                    }
                }
                _ => None,
            },
            Expr::Function(function) if random_text(function).is_some() => Some(1),
            _ => None,
        }
    }

    /// Compiles an expression whose value is a text of up to `bytes` bytes. Returns the first
    /// register of the text.
    pub(super) fn text(&mut self, expression: &Expr, bytes: u32) -> Read<Register> {
        let place = self.at.of(expression.span());
        match expression {
            Expr::Nested(inner) => return self.text(inner, bytes),
            Expr::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => return self.text_constant(place, text, bytes),
                Value::Null => return self.text_constant(place, "", bytes),
                Value::Placeholder(name) => {
                    let name = name.trim_start_matches(':').to_lowercase();
                    if let Some(&Variable { register, of: Type::Text(own) }) = self.variables.get(&name) {
                        let to = self.registers(Type::Text(bytes).words())?;
                        let words = Type::Text(own).words().min(Type::Text(bytes).words()) as u16;
                        self.push(Step::Copy { to, from: register, words });
                        return Ok(to);
                    }
                }
                _ => {}
            },
            Expr::Function(function) if random_text(function).is_some() => {
                let arguments = arguments_of(place, function)?;
                let length = match arguments[..] {
                    [] => self.constant(i64::from(bytes))?,
                    [length] => self.number(length, &mut Names::None)?,
                    _ => {
                        let name = &function.name;
                        return mistake(
                            place,
                            format!("{name} was given 2 or more arguments; valid: 0 or 1 (the bytes)"),
                        );
                    }
                };
                let to = self.registers(Type::Text(bytes).words())?;
                self.push(Step::DrawText { to, length, bytes: bytes as u16, any: is_random_bytes(expression) });
                return Ok(to);
            }
            _ => {}
        }
        mistake(
            place,
            format!(
                "'{expression}' is no text; valid: 'text', a variable with a text, random_text(bytes), random_bytes(bytes)"
            ),
        )
    }

    /// Compiles a value for a column of this type: a number, or a text.
    pub(super) fn value(&mut self, column: &Column, value: &Expr, names: &mut Names<'_>) -> Read<Register> {
        match column.of {
            Type::Number(_) => self.number(value, names),
            Type::Text(_) if is_random_bytes(value) && !column.is_bytes => {
                let place = self.at.of(value.span());
                let name = &column.name;
                mistake(place, format!("{name} is a text, and random_bytes draws no text; valid: random_text"))
            }
            Type::Text(bytes) => self.text(value, bytes),
        }
    }

    fn text_constant(&mut self, place: Place, text: &str, bytes: u32) -> Read<Register> {
        if text.len() > bytes as usize {
            return mistake(place, format!("the text has {} bytes, and there is room for {bytes}", text.len()));
        }
        let to = self.registers(Type::Text(bytes).words())?;
        self.code.image[to as usize] = text.len() as i64;
        for (word, chunk) in text.as_bytes().chunks(8).enumerate() {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            self.code.image[to as usize + 1 + word] = i64::from_le_bytes(padded);
        }
        Ok(to)
    }
}

/// Returns whether a function that draws a text draws any bytes; `None` for another function.
fn random_text(function: &Function) -> Option<bool> {
    match function.name.to_string().to_lowercase().as_str() {
        "random_text" => Some(false),
        "random_bytes" => Some(true),
        _ => None,
    }
}

fn is_random_bytes(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_random_bytes(inner),
        Expr::Function(function) => random_text(function) == Some(true),
        _ => false,
    }
}

/// Returns the arguments of a function.
pub(super) fn arguments_of(place: Place, function: &Function) -> Read<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else {
        return mistake(place, format!("{} has no arguments in parentheses", function.name));
    };
    let of = |argument| match argument {
        &FunctionArg::Unnamed(FunctionArgExpr::Expr(ref expression)) => Ok(expression),
        other => mistake(place, format!("'{other}' is no argument of {}", function.name)),
    };
    list.args.iter().map(of).collect()
}
