//! JSON as far as the service needs it.

use crate::{Data, Tensor};
use std::fmt;
use std::ops::Index;
use std::str::FromStr;

/// A value in JSON. −∞ is written as null. The service refuses NaN and ∞.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Makes an object of names and values: `Value::object([("causal", true.into())])`.
    pub fn object<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
        Value::Object(members.into_iter().map(|(name, value)| (name.to_string(), value)).collect())
    }

    /// Returns the members of an object, and none of another value.
    pub fn members(&self) -> &[(String, Value)] {
        if let Value::Object(members) = self {
            members
        } else {
            &[]
        }
    }

    pub fn get(&self, name: &str) -> Option<&Value> {
        self.members().iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Value::Text(text) = self {
            Some(text)
        } else {
            None
        }
    }

    pub fn as_f64(&self) -> Option<f64> {
        if let Value::Number(number) = self {
            Some(*number)
        } else {
            None
        }
    }

    pub fn as_list(&self) -> Option<&[Value]> {
        if let Value::List(list) = self {
            Some(list)
        } else {
            None
        }
    }

    /// Reads a number, or arrays of numbers of any rank. Null is −∞.
    pub fn tensor(&self) -> Result<Tensor, String> {
        let (mut shape, mut numbers, mut first) = (Vec::new(), Vec::new(), Some(self));
        while let Some(Value::List(list)) = first {
            shape.push(list.len());
            first = list.first();
        }
        self.flatten(&shape, &mut numbers)?;
        Ok(Tensor { shape, data: Data::F64(numbers) })
    }

    fn flatten(&self, shape: &[usize], numbers: &mut Vec<f64>) -> Result<(), String> {
        match (self, shape) {
            (Value::List(list), [size, inner @ ..]) if *size == list.len() => {
                return list.iter().try_for_each(|member| member.flatten(inner, numbers));
            }
            (Value::Number(number), []) => numbers.push(*number),
            (Value::Null, []) => numbers.push(f64::NEG_INFINITY),
            (Value::List(_) | Value::Number(_) | Value::Null, _) => {
                return Err("the rows of a tensor differ in length".into());
            }
            _ => return Err(format!("{self} is no number of a tensor")),
        }
        Ok(())
    }
}

/// The value of a missing name is null.
impl Index<&str> for Value {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        self.get(name).unwrap_or(&Value::Null)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Value {
        Value::Bool(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_string())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

macro_rules! from_numbers {
    ($($number:ty: $is_exact:expr),*) => { $(
        impl From<$number> for Value {
            fn from(number: $number) -> Value {
                Value::Number(if $is_exact(number) { number as f64 } else { f64::NAN })
            }
        }
    )* };
}
// The service reads numbers as f64, so an integer beyond 2^53 would lose digits. It becomes NaN, which `ask` refuses.
from_numbers!(f32: |_| true, f64: |_| true, i32: |_| true, i64: |x: i64| x.unsigned_abs() <= 1 << 53, usize: |x| x as u64 <= 1 << 53);

impl<T: Into<Value>> From<Vec<T>> for Value {
    fn from(list: Vec<T>) -> Value {
        Value::List(list.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Value>, const N: usize> From<[T; N]> for Value {
    fn from(list: [T; N]) -> Value {
        Value::List(list.into_iter().map(Into::into).collect())
    }
}

/// # Panics
/// It panics if the data does not fit the shape.
impl From<&Tensor> for Value {
    fn from(tensor: &Tensor) -> Value {
        assert!(tensor.fits(), "the data of a tensor does not fit its shape {:?}", tensor.shape);
        let mut values: Vec<Value> = match &tensor.data {
            Data::Bool(data) => data.iter().map(|&x| x.into()).collect(),
            Data::I64(data) => data.iter().map(|&x| x.into()).collect(),
            _ => tensor.to_f64().into_iter().map(Value::from).collect(),
        };
        for (axis, &size) in tensor.shape.iter().enumerate().skip(1).rev() {
            values = match size {
                0 => vec![Value::List(Vec::new()); tensor.shape[..axis].iter().product()],
                _ => values.chunks(size).map(|row| Value::List(row.to_vec())).collect(),
            };
        }
        if tensor.shape.is_empty() {
            values.remove(0)
        } else {
            Value::List(values)
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(number) if *number == f64::NEG_INFINITY => f.write_str("null"),
            Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                write!(f, "{number}")
            }
            Value::Number(number) => write!(f, "{number:?}"),
            Value::Text(text) => write_text(f, text),
            Value::List(list) => {
                for (i, member) in list.iter().enumerate() {
                    write!(f, "{}{member}", if i == 0 { "[" } else { "," })?;
                }
                f.write_str(if list.is_empty() { "[]" } else { "]" })
            }
            Value::Object(members) => write_object(f, members.iter()),
        }
    }
}

/// Writes an object with its lists last, so that the service knows the options when it reads the matrices.
pub(crate) struct OptionsFirst<'a>(pub &'a Value);

impl fmt::Display for OptionsFirst<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Value::Object(members) = self.0 else {
            return self.0.fmt(f);
        };
        let (lists, others): (Vec<_>, Vec<_>) = members.iter().partition(|(_, value)| matches!(value, Value::List(_)));
        write_object(f, others.into_iter().chain(lists))
    }
}

fn write_object<'a>(f: &mut fmt::Formatter, members: impl Iterator<Item = &'a (String, Value)>) -> fmt::Result {
    f.write_str("{")?;
    for (i, (name, member)) in members.enumerate() {
        f.write_str(if i == 0 { "" } else { "," })?;
        write_text(f, name)?;
        write!(f, ":{member}")?;
    }
    f.write_str("}")
}

fn write_text(f: &mut fmt::Formatter, text: &str) -> fmt::Result {
    f.write_str("\"")?;
    for c in text.chars() {
        match c {
            '"' | '\\' => write!(f, "\\{c}")?,
            '\0'..='\x1f' => write!(f, "\\u{:04x}", c as u32)?,
            _ => write!(f, "{c}")?,
        }
    }
    f.write_str("\"")
}

impl FromStr for Value {
    type Err = String;

    fn from_str(text: &str) -> Result<Value, String> {
        let mut parser = Parser { rest: text };
        match parser.value(100) {
            Some(value) if parser.peek().is_none() => Ok(value),
            _ => Err(format!("it is not JSON at byte {}", text.len() - parser.rest.len())),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl Parser<'_> {
    /// Skips white space, and returns the next character.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        self.rest.chars().next()
    }

    fn take(&mut self, wanted: char) -> Option<()> {
        self.peek();
        self.rest = self.rest.strip_prefix(wanted)?;
        Some(())
    }

    /// Reads a value that has at most so many levels.
    fn value(&mut self, levels: u32) -> Option<Value> {
        let levels = levels.checked_sub(1)?;
        match self.peek()? {
            '{' => {
                let mut members = Vec::new();
                self.take('{')?;
                while self.peek()? != '}' {
                    if !members.is_empty() {
                        self.take(',')?;
                    }
                    self.peek()?;
                    let name = self.text()?;
                    self.take(':')?;
                    members.push((name, self.value(levels)?));
                }
                self.take('}').map(|()| Value::Object(members))
            }
            '[' => {
                let mut list = Vec::new();
                self.take('[')?;
                while self.peek()? != ']' {
                    if !list.is_empty() {
                        self.take(',')?;
                    }
                    list.push(self.value(levels)?);
                }
                self.take(']').map(|()| Value::List(list))
            }
            '"' => self.text().map(Value::Text),
            _ => {
                let end = self.rest.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                let value = match word {
                    "null" => Value::Null,
                    "true" | "false" => Value::Bool(word == "true"),
                    // f64 also knows words such as "inf".
                    _ if word.ends_with(|c: char| c.is_ascii_digit()) => Value::Number(word.parse().ok()?),
                    _ => return None,
                };
                self.rest = rest;
                Some(value)
            }
        }
    }

    fn text(&mut self) -> Option<String> {
        self.rest = self.rest.strip_prefix('"')?;
        let mut said = String::new();
        loop {
            let c = self.next()?;
            match c {
                '"' => return Some(said),
                '\\' => match self.next()? {
                    'b' => said.push('\x08'),
                    'f' => said.push('\x0c'),
                    'n' => said.push('\n'),
                    'r' => said.push('\r'),
                    't' => said.push('\t'),
                    'u' => {
                        let mut code = self.code()?;
                        if (0xd800..0xdc00).contains(&code) {
                            self.rest = self.rest.strip_prefix("\\u")?;
                            code = 0x10000 + ((code - 0xd800) << 10) + self.code()?.checked_sub(0xdc00)?;
                        }
                        said.push(char::from_u32(code)?);
                    }
                    escaped => said.push(escaped),
                },
                _ => said.push(c),
            }
        }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Reads the four digits after \u.
    fn code(&mut self) -> Option<u32> {
        let digits = self.rest.get(..4)?;
        self.rest = &self.rest[4..];
        u32::from_str_radix(digits, 16).ok()
    }
}
