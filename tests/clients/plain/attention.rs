//! attention.rs asks attentiond for attention. It needs Rust 1.58 or later, and no crate. It speaks
//! http, not https.
//!
//!     rustc attention.rs && ./attention [http://127.0.0.1:8080]

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;
type Results = HashMap<String, Vec<f32>>;

/// A matrix, or a stack of matrices. Its numbers are in the order of the rows.
#[derive(Clone, Copy)]
struct Tensor<'a> {
    name: &'a str,
    shape: &'a [usize],
    data: &'a [f32],
}

/// Returns the value of a header, or an empty text.
fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let found = headers.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map_or("", |(_, value)| value.trim())
}

/// Joins the chunks of a body that came without its length.
fn dechunk(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 2 + size + 2..)?;
    }
}

/// Sends a body, and returns the head and the body of the answer. Unless the status is 200, the
/// error has the status and what the service says.
fn post(url: &str, headers: &str, body: &[u8]) -> Result<(String, Vec<u8>)> {
    let address = url.strip_prefix("http://").ok_or("the URL does not begin with http://")?;
    let (host, path) = address.split_once('/').unwrap_or((address, ""));
    let mut stream = TcpStream::connect(host)?;
    let length = format!("Content-Length: {}", body.len());
    let head = format!("POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{length}");
    stream.write_all(format!("{head}\r\n{headers}\r\n").as_bytes())?;
    stream.write_all(body)?;

    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").ok_or("it said nothing")?;
    let mut body = answer.split_off(end + 4);
    let head = String::from_utf8(answer)?;
    if header(&head, "Transfer-Encoding") == "chunked" {
        body = dechunk(&body).ok_or("the answer ended early")?;
    } else if header(&head, "Content-Length") != body.len().to_string() {
        return Err("the answer ended early".into());
    }
    match head.split(' ').nth(1) {
        Some("200") => Ok((head, body)),
        status => {
            let text = String::from_utf8(body)?;
            Err(format!("{} {}", status.unwrap_or("?"), text.trim_end()).into())
        }
    }
}

/// Sends a request as JSON, and returns the answer as JSON.
fn ask(url: &str, json: &str) -> Result<String> {
    let (_, body) = post(url, "Content-Type: application/json\r\n", json.as_bytes())?;
    Ok(String::from_utf8(body)?)
}

/// Sends tensors as bytes, and returns these outputs by their names. No number becomes text.
fn infer(url: &str, options: &str, inputs: &[Tensor], outputs: &[&str]) -> Result<Results> {
    let describe = |Tensor { name, shape, data }: &Tensor| {
        let size = format!(r#"{{"binary_data_size":{}}}"#, 4 * data.len());
        format!(r#"{{"name":"{name}","datatype":"FP32","shape":{shape:?},"parameters":{size}}}"#)
    };
    let want = |name| format!(r#"{{"name":"{name}","parameters":{{"binary_data":true}}}}"#);
    let json = format!(
        r#"{{"inputs":[{}],"outputs":[{}],"parameters":{options}}}"#,
        inputs.iter().map(describe).collect::<Vec<_>>().join(","),
        outputs.iter().map(want).collect::<Vec<_>>().join(","),
    );
    let length = format!("Inference-Header-Content-Length: {}\r\n", json.len());
    let headers = length + "Content-Type: application/octet-stream\r\n";
    let mut body = json.into_bytes();
    body.extend(inputs.iter().flat_map(|input| input.data).flat_map(|number| number.to_le_bytes()));

    let (head, mut answer) = post(url, &headers, &body)?;
    let mut numbers = answer.split_off(header(&head, "Inference-Header-Content-Length").parse()?);
    // The JSON describes the outputs in the order of their bytes.
    let json = String::from_utf8(answer)?;
    let mut results = HashMap::new();
    for text in json.split("{\"name\":\"").skip(1) {
        let name = text.split('"').next().unwrap();
        if !text.contains("\"datatype\":\"FP32\"") {
            return Err(format!("{name} is not FP32; this client reads nothing else").into());
        }
        let size = text.split("\"binary_data_size\":").nth(1).ok_or("an output is not binary")?;
        let digits: String = size.chars().take_while(char::is_ascii_digit).collect();
        let rest = numbers.split_off(digits.parse()?);
        let floats =
            numbers.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        results.insert(name.to_string(), floats.collect());
        numbers = rest;
    }
    Ok(results)
}

fn main() -> Result<()> {
    let base = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080".into());

    let question = r#"{
        "Q": [[1, 0, 2], [0, 3, 1]],
        "K": [[1, 1, 0], [0, 2, 1], [3, 0, 1], [1, 0, 1]],
        "V": [[1, 2], [3, 4], [5, 6], [7, 8]]}"#;
    println!("JSON: {}", ask(&format!("{base}/attention"), question)?.trim_end());

    let url = format!("{base}/v2/models/attention/infer");
    let q = Tensor { name: "Q", shape: &[2, 3], data: &[1., 0., 2., 0., 3., 1.] };
    let k = Tensor {
        name: "K",
        shape: &[4, 3],
        data: &[1., 1., 0., 0., 2., 1., 3., 0., 1., 1., 0., 1.],
    };
    let v = Tensor { name: "V", shape: &[4, 2], data: &[1., 2., 3., 4., 5., 6., 7., 8.] };
    let results = infer(&url, r#"{"causal": true}"#, &[q, k, v], &["output", "weights"])?;
    println!("binary output: {:?}\nbinary weights: {:?}", results["output"], results["weights"]);

    let bad = Tensor { shape: &[6, 2], ..k };
    if let Err(error) = infer(&url, "{}", &[q, bad, v], &["output"]) {
        println!("error: {error}");
    }
    Ok(())
}
