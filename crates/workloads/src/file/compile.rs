//! From scripts to code.

use sqlparser::ast::{Expr, Statement, TableFactor, TableWithJoins, Value};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use super::error::{Place, Read, mistake, of_parser, unknown};
use super::expression::{Names, Writer};
use super::instead;
use super::program::{Code, ROUNDS_MAX, Register, Step};
use super::schema::{Column, Type, simple_name};
use super::script::{Part, Text, split};

/// The most bytes of a statement or an expression.
const TEXT_BYTES_MAX: usize = 4000;

/// An open block of a script.
enum Block {
    /// `\if`: the step that leaves the current branch, if it has a condition, and the steps at the
    /// end of each branch.
    If {
        unless: Option<usize>,
        ends: Vec<usize>,
        at: Place,
        has_else: bool,
    },
    Repeat {
        start: u32,
        left: Register,
        step: usize,
        at: Place,
    },
    Each {
        start: u32,
        access: u16,
        step: usize,
        at: Place,
    },
}

impl Block {
    /// Returns where the block begins, and the commands at its two ends.
    fn borders(&self) -> (Place, &'static str, &'static str) {
        match *self {
            Block::If { at, .. } => (at, "\\if", "\\endif"),
            Block::Repeat { at, .. } => (at, "\\repeat", "\\endrepeat"),
            Block::Each { at, .. } => (at, "\\foreach", "\\endforeach"),
        }
    }
}

/// Returns the mistake of an end whose beginning is not that of the innermost open block.
fn not_inside<T>(at: Place, end: &str, begin: &str, open: Option<&Block>) -> Read<T> {
    let why = match open.map(Block::borders) {
        Some((at, begin, end)) => format!("; before it, the {begin} of line {} needs its {end}", at.line),
        None => String::new(),
    };
    mistake(at, format!("{end} is not inside a {begin}{why}"))
}

/// Refuses a long text: expressions are trees, and a long one is too deep for the stack.
pub(super) fn short(text: &str, at: Place) -> Read<()> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    mistake(at, format!("a statement or expression of {} bytes; valid: up to {TEXT_BYTES_MAX}", text.len()))
}

/// Parses one statement.
fn statement_of(text: &str, at: Place) -> Read<Statement> {
    short(text, at)?;
    let parsed = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(50).try_with_sql(text);
    let statements = parsed.and_then(|mut parser| parser.parse_statements()).map_err(|error| of_parser(at, &error))?;
    match <[Statement; 1]>::try_from(statements) {
        Ok([statement]) => Ok(statement),
        Err(_) => mistake(at, "one statement was expected here"),
    }
}

/// Parses an expression, all of the text.
pub(super) fn expression_of(text: &str, at: Place) -> Read<Expr> {
    short(text, at)?;
    let parser = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(50).try_with_sql(text);
    let mut parser = parser.map_err(|error| of_parser(at, &error))?;
    let expression = parser.parse_expr().map_err(|error| of_parser(at, &error))?;
    let rest = parser.peek_token();
    match rest.token {
        sqlparser::tokenizer::Token::EOF => Ok(expression),
        other => mistake(at.of(rest.span), format!("'{other}' is behind the end of the expression")),
    }
}

/// Compiles a script.
///
/// # Errors
/// The first mistake.
pub(super) fn compile(writer: &mut Writer<'_>, script: &str) -> Read<()> {
    let mut blocks: Vec<Block> = Vec::new();
    let parts = split(script)?;
    writer.reads_found = script.to_lowercase().contains(":found");
    let count = parts.len();
    for (number, (part, at)) in parts.into_iter().enumerate() {
        writer.at = at;
        match part {
            Part::Set { name, expression } => {
                let expression = writer.expression(&expression)?;
                writer.set(&name, &expression)?;
            }
            Part::If(_) | Part::Elif(_) | Part::Else | Part::EndIf => writer.branch(&part, &mut blocks)?,
            Part::Repeat(_) | Part::EndRepeat | Part::ForEach(_) | Part::EndForEach => {
                writer.rounds(&part, &mut blocks)?
            }
            Part::Sleep { amount, unit } => {
                let amount = writer.expression(&amount)?;
                let amount = writer.number(&amount, &mut Names::None)?;
                writer.push(Step::Sleep { amount, unit });
            }
            Part::Sql { text, variables } => {
                let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
                let is_border = |borders: &[&str]| words.len() <= 2 && borders.contains(&words[0].as_str());
                let is_first = writer.code.accesses.is_empty() && is_border(&["begin", "start"]);
                let is_last = number + 1 == count && is_border(&["end", "commit"]);
                if !is_first && !is_last {
                    writer.statement(&text, variables.as_deref())?;
                }
            }
        }
    }
    if let Some((at, begin, end)) = blocks.pop().as_ref().map(Block::borders) {
        return mistake(at, format!("{begin} has no {end}"));
    }
    if writer.code.accesses.is_empty() {
        return mistake(Place { line: 1, column: 1 }, "the script accesses no table");
    }
    super::known::find(&mut writer.code);
    Ok(())
}

impl Writer<'_> {
    /// Parses an expression. Mistakes in it have places from its beginning on.
    fn expression(&mut self, text: &Text) -> Read<Expr> {
        self.at = text.at;
        expression_of(&text.text, text.at)
    }

    /// Compiles `\if` and what belongs to it.
    fn branch(&mut self, part: &Part, blocks: &mut Vec<Block>) -> Read<()> {
        let at = self.at;
        match part {
            Part::If(condition) => {
                let unless = self.unless(condition)?;
                blocks.push(Block::If { unless: Some(unless), ends: Vec::new(), at, has_else: false });
            }
            Part::Elif(_) | Part::Else => {
                let Some(Block::If { unless, ends, has_else: false, .. }) = blocks.last_mut() else {
                    return mistake(at, "\\elif or \\else is not inside an \\if, or behind its \\else");
                };
                ends.push(self.code.steps.len());
                self.push(Step::Jump { to: 0, by_rows: false });
                if let Some(step) = unless.take() {
                    self.aim(step);
                }
                if let Part::Elif(condition) = part {
                    *unless = Some(self.unless(condition)?);
                } else if let Some(Block::If { has_else, .. }) = blocks.last_mut() {
                    *has_else = true;
                }
            }
            Part::EndIf => {
                let (unless, ends) = match blocks.pop() {
                    Some(Block::If { unless, ends, .. }) => (unless, ends),
                    open => return not_inside(at, "\\endif", "\\if", open.as_ref()),
                };
                unless.into_iter().chain(ends).for_each(|step| self.aim(step));
            }
            _ => {}
        }
        Ok(())
    }

    /// Compiles the beginning or the end of a loop.
    fn rounds(&mut self, part: &Part, blocks: &mut Vec<Block>) -> Read<()> {
        let at = self.at;
        match part {
            Part::Repeat(rounds) => {
                let rounds = self.expression(rounds)?;
                let count = self.number(&rounds, &mut Names::None)?;
                if self.value_of(count).is_some_and(|count| count > ROUNDS_MAX as i64) {
                    return mistake(at, format!("a loop of more than {ROUNDS_MAX} rounds"));
                }
                let left = self.registers(1)?;
                let step = self.code.steps.len();
                self.push(Step::Repeat { count, left, end: 0 });
                blocks.push(Block::Repeat { start: self.here(), left, step, at });
            }
            Part::EndRepeat => {
                let (start, left, step) = match blocks.pop() {
                    Some(Block::Repeat { start, left, step, .. }) => (start, left, step),
                    open => return not_inside(at, "\\endrepeat", "\\repeat", open.as_ref()),
                };
                self.push(Step::Again { left, start });
                self.aim(step);
            }
            Part::ForEach(select) => {
                self.at = select.at;
                let statement = statement_of(&select.text, select.at)?;
                let Statement::Query(query) = &statement else {
                    return mistake(at, "\\foreach is followed by a select");
                };
                let access = self.select(query, Some(""), true)?;
                let step = self.code.steps.len();
                self.push(Step::Each { access, end: 0 });
                blocks.push(Block::Each { start: self.here(), access, step, at });
            }
            Part::EndForEach => {
                let (start, access, step) = match blocks.pop() {
                    Some(Block::Each { start, access, step, .. }) => (start, access, step),
                    open => return not_inside(at, "\\endforeach", "\\foreach", open.as_ref()),
                };
                self.push(Step::Next { access, start });
                self.aim(step);
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes a jump lead here.
    pub(super) fn aim(&mut self, step: usize) {
        let here = self.here();
        *self.code.steps[step].target_mut().expect("a step that leads to another one") = here;
    }

    fn unless(&mut self, condition: &Text) -> Read<usize> {
        let condition = self.expression(condition)?;
        let condition = self.number(&condition, &mut Names::None)?;
        self.push(Step::Unless { condition, to: 0, by_rows: false });
        Ok(self.code.steps.len() - 1)
    }

    fn set(&mut self, name: &str, expression: &Expr) -> Read<()> {
        if self.is_text(expression) {
            let bytes = match self.variables.get(name) {
                Some(variable) => match variable.of {
                    Type::Text(bytes) => bytes,
                    Type::Number(_) => return mistake(self.at, format!("variable :{name} is a number")),
                },
                None => match expression {
                    Expr::Value(value) => match &value.value {
                        Value::SingleQuotedString(text) => text.len().max(1) as u32,
                        _ => 1,
                    },
                    _ => {
                        return mistake(
                            self.at,
                            "a text is drawn where it is stored: random_text or random_bytes in values or in set",
                        );
                    }
                },
            };
            let from = self.text(expression, bytes)?;
            let variable = self.variable(self.at, name, Type::Text(bytes))?;
            self.push(Step::Copy { to: variable.register, from, words: Type::Text(bytes).words() as u16 });
            return Ok(());
        }
        let before = self.code.steps.len();
        let from = self.number(expression, &mut Names::None)?;
        let to = self.variable(self.at, name, Type::Number(8))?.register;
        self.put_into(to, from, before);
        Ok(())
    }

    pub(super) fn table(&self, name: &str, at: Place) -> Read<usize> {
        match self.tables.iter().position(|table| table.name == name && table.index_of.is_none()) {
            Some(table) => Ok(table),
            None => {
                let valid = self.tables.iter().filter(|table| table.index_of.is_none());
                unknown(at, "table", name, valid.map(|table| table.name.as_str()))
            }
        }
    }

    pub(super) fn only_table(&self, from: &[TableWithJoins]) -> Read<usize> {
        let [TableWithJoins { relation: TableFactor::Table { name, alias, args: None, .. }, joins }] = from else {
            let inner = from.iter().any(|of| matches!(of.relation, TableFactor::Derived { .. }));
            let joined = "a statement reads one table, by its name; joins are not possible: use two selects";
            return mistake(self.at, if inner { instead::QUERY } else { joined });
        };
        if !joins.is_empty() {
            return mistake(self.at, "a statement reads one table; joins are not possible: use two selects");
        }
        let (name, at) = simple_name(self.at, name)?;
        if alias.is_some() {
            return mistake(at, instead::no_alias(&name));
        }
        self.table(&name, at)
    }

    fn statement(&mut self, text: &str, variables: Option<&str>) -> Read<()> {
        let statement = statement_of(text, self.at)?;
        if variables.is_some() && !matches!(statement, Statement::Query(_)) {
            return mistake(self.at, "\\gset follows a statement that is no select");
        }
        match &statement {
            Statement::Query(query) => {
                let access = self.select(query, variables, false)?;
                let step = self.step_of_select(access);
                if let Step::Modify { .. } = step {
                    let at = self.code.steps.len();
                    self.push(step);
                    self.aim(at);
                } else {
                    self.push(step);
                }
                Ok(())
            }
            Statement::Update(update) => self.update(update),
            Statement::Insert(insert) => self.insert(insert),
            Statement::Delete(delete) => self.delete(delete),
            Statement::Rollback { .. } => {
                self.push(Step::Cancel);
                Ok(())
            }
            other => {
                let first = other.to_string();
                let first = first.split_whitespace().next().unwrap_or_default().to_lowercase();
                mistake(
                    self.at,
                    format!("'{first}' is not possible here; valid: select, update, insert, delete, rollback"),
                )
            }
        }
    }
}

/// Compiles one expression of `[fill]`, for this column. Returns the code, and the register of the
/// value.
pub(super) fn fill(mut writer: Writer<'_>, text: &str, column: &Column) -> Read<(Code, Register)> {
    writer.fills = true;
    let expression = expression_of(text, writer.at)?;
    let register = writer.value(column, &expression, &mut Names::None)?;
    Ok((writer.code.prepare(), register))
}
