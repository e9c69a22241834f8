//! A client of attentiond, the service that computes attention. It speaks http, and not https. It needs Rust 1.63 or later, and
//! no crate. For https, run a proxy such as stunnel or HAProxy beside your program.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

mod json;
pub use json::Value;

const JSON: &str = "application/json";
const SAFETENSORS: &str = "application/vnd.safetensors";
const TRIES: u32 = 5;
const LONGEST_WAIT: u64 = 30; // seconds between two tries, whatever the service says

/// The service refused a request or did not answer, or the request is wrong and was not sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Error {
    /// The status of HTTP, or 0 without an answer.
    pub status: u16,
    pub detail: String,
    /// A JSON pointer to the wrong part of the request, or "".
    pub pointer: String,
    /// The log of the service has it, too.
    pub request_id: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let status = if self.status == 0 { String::new() } else { format!("{} ", self.status) };
        f.write_str(format!("{status}{} {}", self.detail, self.pointer).trim_end())
    }
}

impl std::error::Error for Error {}

/// A number, a matrix, or a stack of matrices, with its numbers in the order of the rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    pub shape: Vec<usize>,
    pub data: Data,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    F32(Vec<f32>),
    F64(Vec<f64>),
    I64(Vec<i64>),
    Bool(Vec<bool>),
}

macro_rules! from_numbers {
    ($($name:ident $number:ty),*) => { $(
        impl From<Vec<$number>> for Data {
            fn from(numbers: Vec<$number>) -> Data {
                Data::$name(numbers)
            }
        }
    )* };
}
from_numbers!(F32 f32, F64 f64, I64 i64, Bool bool);

impl Tensor {
    pub fn new(shape: &[usize], data: impl Into<Data>) -> Tensor {
        Tensor { shape: shape.to_vec(), data: data.into() }
    }

    /// Returns the numbers of a tensor of any type. Those of bool are 1 and 0.
    pub fn to_f64(&self) -> Vec<f64> {
        match &self.data {
            Data::F32(numbers) => numbers.iter().map(|&x| f64::from(x)).collect(),
            Data::F64(numbers) => numbers.clone(),
            Data::I64(numbers) => numbers.iter().map(|&x| x as f64).collect(),
            Data::Bool(numbers) => numbers.iter().map(|&x| f64::from(u8::from(x))).collect(),
        }
    }

    /// Tells whether there are as many numbers as the shape says.
    fn fits(&self) -> bool {
        let count = match &self.data {
            Data::F32(numbers) => numbers.len(),
            Data::F64(numbers) => numbers.len(),
            Data::I64(numbers) => numbers.len(),
            Data::Bool(numbers) => numbers.len(),
        };
        self.shape.iter().try_fold(1, |product: usize, &size| product.checked_mul(size)) == Some(count)
    }

    /// Returns the type in safetensors, and the bytes.
    fn bytes(&self) -> (&'static str, Vec<u8>) {
        match &self.data {
            Data::F32(numbers) => ("F32", numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Data::F64(numbers) => ("F64", numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Data::I64(numbers) => ("I64", numbers.iter().flat_map(|x| x.to_le_bytes()).collect()),
            Data::Bool(numbers) => ("BOOL", numbers.iter().map(|&x| u8::from(x)).collect()),
        }
    }
}

impl Data {
    /// Reads the numbers of a type of safetensors.
    fn read(dtype: &str, bytes: &[u8]) -> Result<Data, String> {
        let width =
            [("F32", 4), ("F64", 8), ("I64", 8)].iter().find(|(name, _)| *name == dtype).map_or(1, |(_, width)| *width);
        if bytes.len() % width != 0 {
            return Err("is cut".into());
        }
        let wide = || bytes.chunks_exact(8).map(|b| <[u8; 8]>::try_from(b).unwrap());
        match dtype {
            "F32" => {
                let narrow = bytes.chunks_exact(4).map(|b| <[u8; 4]>::try_from(b).unwrap());
                Ok(Data::F32(narrow.map(f32::from_le_bytes).collect()))
            }
            "F64" => Ok(Data::F64(wide().map(f64::from_le_bytes).collect())),
            "I64" => Ok(Data::I64(wide().map(i64::from_le_bytes).collect())),
            "BOOL" => Ok(Data::Bool(bytes.iter().map(|&b| b != 0).collect())),
            _ => Err(format!(r#"has the type {dtype}; the option "dtype": "float32" avoids it"#)),
        }
    }
}

/// The address of a service, such as http://127.0.0.1:8080. Threads may share it.
#[derive(Clone, Debug)]
pub struct Client {
    base_url: String,
    pub api_key: Option<String>,
    /// How long one try may take, from the connection to the last byte: 60 seconds unless you change it.
    pub timeout: Duration,
    /// How many bytes an answer may have: 1 GiB unless you change it.
    pub max_answer: usize,
}

impl Client {
    pub fn new(base_url: &str) -> Client {
        let base_url = base_url.trim_end_matches('/').to_string();
        Client { base_url, api_key: None, timeout: Duration::from_secs(60), max_answer: 1 << 30 }
    }

    /// Sends a request as JSON, or GET if it is null, and returns the answer. A NaN, ∞ and an integer beyond 2^53 are errors.
    pub fn ask(&self, path: &str, request: &Value) -> Result<Value, Error> {
        checked(request)?;
        let body = json::OptionsFirst(request).to_string();
        let body = if matches!(request, Value::Null) { None } else { Some(body.as_bytes()) };
        self.json(path, self.send(path, JSON, JSON, body)?)
    }

    /// Sends tensors as bytes, and returns the results by their names. A comparison and lists of words need `compare` or `ask`.
    pub fn tensors(
        &self,
        path: &str,
        tensors: &[(&str, Tensor)],
        options: &[(&str, Value)],
    ) -> Result<BTreeMap<String, Tensor>, Error> {
        let answer = self.send(path, SAFETENSORS, SAFETENSORS, Some(&pack(tensors, options)?))?;
        unpack(&answer).map_err(|error| self.unreadable(path, &error))
    }

    /// Sends tensors as bytes, with expected results such as `expected.output`, and returns the comparison.
    pub fn compare(
        &self,
        path: &str,
        tensors: &[(&str, Tensor)],
        options: &[(&str, Value)],
    ) -> Result<Value, Error> {
        let options = [&[("return", ["comparison"].into())], options].concat();
        let answer = self.send(path, SAFETENSORS, JSON, Some(&pack(tensors, &options)?))?;
        Ok(self.json(path, answer)?["comparison"].clone())
    }

    fn json(&self, path: &str, answer: Vec<u8>) -> Result<Value, Error> {
        let text = String::from_utf8(answer).map_err(|error| self.unreadable(path, &error.to_string()))?;
        text.parse().map_err(|error: String| self.unreadable(path, &error))
    }

    fn unreadable(&self, path: &str, why: &str) -> Error {
        let detail = format!("the answer of {}{path} cannot be read: {why}", self.base_url);
        Error { status: 200, detail, ..Error::default() }
    }

    fn send(&self, path: &str, kind: &str, accept: &str, body: Option<&[u8]>) -> Result<Vec<u8>, Error> {
        let mut tries = 0;
        loop {
            tries += 1;
            let answer = self.send_once(path, kind, accept, body).map_err(|error| {
                if error.kind() == io::ErrorKind::OutOfMemory {
                    return Error { status: 200, detail: error.to_string(), ..Error::default() };
                }
                let late = matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
                let why = if late { format!("timed out after {:?}", self.timeout) } else { error.to_string() };
                Error { detail: format!("no answer from {}: {why}", self.base_url), ..Error::default() }
            })?;
            if answer.status == 200 {
                return Ok(answer.body);
            }
            match answer.header("Retry-After") {
                // It is given if the same request may succeed later. It may also be a date.
                Some(wait) if answer.status == 503 && tries < TRIES => {
                    let date = wait.is_empty() || !wait.bytes().all(|byte| byte.is_ascii_digit());
                    let seconds = if date { 1 } else { wait.parse().unwrap_or(LONGEST_WAIT) };
                    std::thread::sleep(Duration::from_secs(seconds.min(LONGEST_WAIT)));
                }
                _ => return Err(answer.problem()),
            }
        }
    }

    fn send_once(&self, path: &str, kind: &str, accept: &str, body: Option<&[u8]>) -> io::Result<Answer> {
        let end = Instant::now() + self.timeout.min(Duration::from_secs(1 << 32)); // a sum must not overflow
        let url = format!("{}{path}", self.base_url);
        let address = url.strip_prefix("http://").ok_or_else(|| invalid("the URL does not begin with http://"))?;
        let key = self.api_key.as_deref().unwrap_or("").trim();
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) || key.bytes().any(|byte| byte.is_ascii_control()) {
            return Err(invalid("the URL or the API key has a character that cannot be sent"));
        }
        let (host, target) = address.split_once('/').unwrap_or((address, ""));
        let (mut stream, mut tried) = (None, invalid("the host has no address"));
        let host_and_port =
            if host.rsplit(']').next().unwrap_or("").contains(':') { host.to_string() } else { format!("{host}:80") };
        for address in host_and_port.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left(end)?) {
                Ok(connected) => {
                    stream = Some(connected);
                    break;
                }
                Err(error) => tried = error,
            }
        }
        let mut stream = stream.ok_or(tried)?;

        let method = if body.is_some() { "POST" } else { "GET" };
        let mut head = format!("{method} /{target} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\nConnection: close\r\n");
        if let Some(body) = body {
            head += &format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        }
        if !key.is_empty() {
            head += &format!("Authorization: Bearer {key}\r\n");
        }
        write(&mut stream, (head + "\r\n").as_bytes(), end)?;
        // A service that refuses a long body may answer before it has read it.
        let sent = write(&mut stream, body.unwrap_or(&[]), end);
        Answer::read(&mut stream, end, self.max_answer).map_err(|error| sent.err().unwrap_or(error))
    }
}

/// Writes all bytes before `end`. The time-out of a stream holds for each call of write() alone.
fn write(stream: &mut TcpStream, mut rest: &[u8], end: Instant) -> io::Result<()> {
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(&rest[..rest.len().min(1 << 16)]) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time until `end`.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    /// Reads an answer up to its end, which is that of the connection if the answer does not say it. Head and body have at most
    /// so many bytes.
    fn read(stream: &mut TcpStream, end: Instant, most: usize) -> io::Result<Answer> {
        let (mut all, mut piece) = (Vec::new(), vec![0; 1 << 16]);
        let mut more = |all: &mut Vec<u8>| loop {
            stream.set_read_timeout(Some(left(end)?))?;
            match stream.read(&mut piece) {
                Ok(count) => {
                    all.extend_from_slice(&piece[..count]);
                    if all.len() > most {
                        return Err(io::Error::new(io::ErrorKind::OutOfMemory, format!("the answer has more than {most} bytes")));
                    }
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let mut answer = loop {
            match find(&all, b"\r\n\r\n") {
                Some(split) => {
                    let body = all.split_off(split + 4);
                    let head = String::from_utf8_lossy(&all).into_owned();
                    let status = head.split_whitespace().nth(1).and_then(|status| status.parse().ok());
                    match status.ok_or_else(|| invalid("the answer is not HTTP"))? {
                        100..=199 => all = body, // the answer follows
                        status => break Answer { status, head, body },
                    }
                }
                None if more(&mut all)? => {}
                None => return Err(invalid("the connection was closed")),
            }
        };
        let early = || invalid("the answer ended early");
        if answer.header("Transfer-Encoding").map_or(false, |coding| coding.eq_ignore_ascii_case("chunked")) {
            let (mut body, mut at) = (Vec::new(), 0);
            while !dechunk(&answer.body, &mut at, &mut body).ok_or_else(early)? {
                if !more(&mut answer.body)? {
                    return Err(early());
                }
            }
            answer.body = body;
        } else if let Some(length) = answer.header("Content-Length") {
            let length: usize = length.parse().map_err(|_| invalid("the length of the answer is no number"))?;
            while answer.body.len() < length {
                if !more(&mut answer.body)? {
                    return Err(early());
                }
            }
            answer.body.truncate(length);
        } else {
            while more(&mut answer.body)? {}
        }
        Ok(answer)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(':'));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the error of an answer. Proxies say what they like in place of a problem document.
    fn problem(&self) -> Error {
        let said: Value = String::from_utf8_lossy(&self.body).parse().unwrap_or(Value::Null);
        let text = |name| said.get(name).and_then(Value::as_str).map(str::to_string);
        let reason = self.head.lines().next().and_then(|line| line.splitn(3, ' ').nth(2)).unwrap_or("");
        Error {
            status: self.status,
            detail: text("detail").or_else(|| text("error")).unwrap_or_else(|| reason.to_string()),
            pointer: text("pointer").unwrap_or_default(),
            request_id: self.header("X-Request-Id").unwrap_or("").to_string(),
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Adds to a body the chunks that are whole, from `at` on, and returns whether the last one is there.
fn dechunk(bytes: &[u8], at: &mut usize, body: &mut Vec<u8>) -> Option<bool> {
    while let Some(end) = find(&bytes[*at..], b"\r\n") {
        let size = std::str::from_utf8(&bytes[*at..*at + end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(true);
        }
        let begin = *at + end + 2;
        let after = begin.checked_add(size)?;
        match bytes.get(after..after.checked_add(2)?) {
            Some(b"\r\n") => body.extend_from_slice(&bytes[begin..after]),
            Some(_) => return None,
            None => break,
        }
        *at = after + 2;
    }
    Some(false)
}

/// Refuses numbers that JSON does not have. An integer beyond 2^53 has become NaN.
fn checked(value: &Value) -> Result<(), Error> {
    match value {
        Value::Number(number) if number.is_nan() || *number == f64::INFINITY => {
            let detail = "a number of the request is NaN, infinite or an integer beyond 2^53, which the service cannot read".into();
            Err(Error { detail, ..Error::default() })
        }
        Value::List(list) => list.iter().try_for_each(checked),
        Value::Object(members) => members.iter().try_for_each(|(_, member)| checked(member)),
        _ => Ok(()),
    }
}

/// Returns safetensors: the length of a JSON text, the text, and the bytes of the tensors.
fn pack(tensors: &[(&str, Tensor)], options: &[(&str, Value)]) -> Result<Vec<u8>, Error> {
    options.iter().try_for_each(|(_, value)| checked(value))?;
    let metadata = options.iter().map(|(name, value)| (*name, Value::from(value.to_string())));
    let (mut head, mut numbers) = (vec![("__metadata__", Value::object(metadata))], Vec::new());
    for (name, tensor) in tensors {
        if !tensor.fits() {
            let detail = format!("the data of {name} does not fit its shape {:?}", tensor.shape);
            return Err(Error { detail, ..Error::default() });
        }
        let (dtype, bytes) = tensor.bytes();
        let offsets = vec![numbers.len(), numbers.len() + bytes.len()];
        numbers.extend(bytes);
        let described =
            [("dtype", dtype.into()), ("shape", tensor.shape.clone().into()), ("data_offsets", offsets.into())];
        head.push((*name, Value::object(described)));
    }
    let text = Value::object(head).to_string();
    let mut body = (text.len() as u64).to_le_bytes().to_vec();
    body.extend(text.into_bytes());
    body.extend(numbers);
    Ok(body)
}

/// Returns a size or an offset, which are whole numbers.
fn size(value: &Value) -> Option<usize> {
    value.as_f64().filter(|&size| size >= 0.0 && size.fract() == 0.0 && size < 9e15).map(|size| size as usize)
}

fn unpack(body: &[u8]) -> Result<BTreeMap<String, Tensor>, String> {
    let length = body.get(..8).ok_or("it is cut")?.try_into().map(u64::from_le_bytes).unwrap();
    let length = usize::try_from(length).ok().filter(|&length| length <= body.len() - 8).ok_or("it is cut")?;
    let (text, numbers) = body[8..].split_at(length);
    let head: Value = std::str::from_utf8(text).map_err(|error| error.to_string())?.parse()?;
    if !matches!(head, Value::Object(_)) {
        return Err("its header is no object".into());
    }
    let mut results = BTreeMap::new();
    for (name, described) in head.members().iter().filter(|(name, _)| name != "__metadata__") {
        let sizes = |key| described[key].as_list()?.iter().map(size).collect::<Option<Vec<usize>>>();
        let bytes = match sizes("data_offsets").as_deref() {
            Some(&[begin, end]) => numbers.get(begin..end),
            _ => None,
        };
        let (shape, bytes) = sizes("shape").zip(bytes).ok_or_else(|| format!("{name} is cut"))?;
        let data = Data::read(described["dtype"].as_str().unwrap_or(""), bytes);
        let tensor = Tensor { shape, data: data.map_err(|error| format!("{name} {error}"))? };
        if !tensor.fits() {
            return Err(format!("{name} is cut"));
        }
        results.insert(name.clone(), tensor);
    }
    Ok(results)
}
