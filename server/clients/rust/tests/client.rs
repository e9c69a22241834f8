//! These tests ask the daemon at $ATTENTIOND_URL: ATTENTIOND_URL=http://127.0.0.1:8080 cargo test
//! They test tries, time-outs and broken answers against tests/clients/own/stub.py, if $ATTENTIOND_STUB_URL has its address.

use attentiond::{Client, Data, Error, Tensor, Value};
use std::env::var;
use std::time::Duration;

type Rows = Vec<Vec<f64>>;
const NAMES: [&str; 3] = ["masked_scores", "weights", "output"];

fn client() -> Client {
    Client::new(&(var("ATTENTIOND_URL").expect("ATTENTIOND_URL is the address of a daemon") + "/"))
}

/// Returns numbers that f32 holds exactly.
fn matrix(rows: usize, columns: usize, seed: usize) -> Rows {
    let number = |i, j| (((seed + i * columns + j) as f64).sin() * 1024.0).floor() / 512.0;
    (0..rows).map(|i| (0..columns).map(|j| number(i, j)).collect()).collect()
}

fn given() -> [(&'static str, Rows); 3] {
    [("Q", matrix(3, 4, 1)), ("K", matrix(5, 4, 20)), ("V", matrix(5, 2, 50))]
}

fn masked(i: usize, j: usize) -> bool {
    (i + j) % 3 != 0
}

/// Returns the masked scores, the weights and the output, where a query i sees a key j if sees(i, j).
fn attention(sees: impl Fn(usize, usize) -> bool) -> [Rows; 3] {
    let [(_, q), (_, k), (_, v)] = given();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    let score = |i: usize, j: usize| {
        if sees(i, j) {
            dot(&q[i], &k[j]) / 2.0
        } else {
            f64::NEG_INFINITY
        }
    };
    let scores: Rows = (0..3).map(|i| (0..5).map(|j| score(i, j)).collect()).collect();
    let softmax = |row: &Vec<f64>| {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        row.iter().map(|x| x.exp() / sum).collect()
    };
    let weights: Rows = scores.iter().map(softmax).collect();
    let column = |c: usize| v.iter().map(|row| row[c]).collect::<Vec<f64>>();
    let output = weights.iter().map(|row| vec![dot(row, &column(0)), dot(row, &column(1))]).collect();
    [scores, weights, output]
}

fn near(got: &Tensor, expected: &Rows, bound: f64) {
    assert_eq!(got.shape, [expected.len(), expected[0].len()]);
    for (number, &right) in got.to_f64().into_iter().zip(expected.iter().flatten()) {
        assert!(number == right || (number - right).abs() <= bound, "{number} is not {right}");
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, status: u16, text: &str) -> Error {
    let error = result.expect_err("it is not refused");
    assert!(error.status == status && error.detail.contains(text), "the error is {error:?}, not {status} {text}");
    error
}

fn f64s(rows: &Rows) -> Tensor {
    Tensor::new(&[rows.len(), rows[0].len()], rows.concat())
}

fn f32s(rows: &Rows) -> Tensor {
    Tensor::new(&[rows.len(), rows[0].len()], rows.concat().iter().map(|&x| x as f32).collect::<Vec<f32>>())
}

fn mask() -> Tensor {
    Tensor::new(&[3, 5], (0..15).map(|i| masked(i / 5, i % 5)).collect::<Vec<bool>>())
}

fn tensors(of: impl Fn(&Rows) -> Tensor) -> Vec<(&'static str, Tensor)> {
    given().iter().map(|(name, rows)| (*name, of(rows))).collect()
}

fn request(more: Vec<(&str, Value)>) -> Value {
    Value::object(given().into_iter().map(|(name, rows)| (name, rows.into())).chain(more))
}

#[test]
fn json() {
    let asked = request(vec![("causal", true.into()), ("return", NAMES.into())]);
    let answer = client().ask("/attention", &asked).unwrap();
    for (name, expected) in NAMES.iter().zip(attention(|i, j| j <= i)) {
        near(&answer[*name].tensor().unwrap(), &expected, 1e-5);
    }
    let bias: Vec<f64> = (0..15).map(|i| if masked(i / 5, i % 5) { 0.0 } else { f64::NEG_INFINITY }).collect();
    for (name, tensor) in [("bias", Tensor::new(&[3, 5], bias)), ("mask", mask())] {
        let answer = client().ask("/attention", &request(vec![(name, (&tensor).into())])).unwrap();
        near(&answer["weights"].tensor().unwrap(), &attention(masked)[1], 1e-5);
    }
    assert!(client().ask("/version", &Value::Null).unwrap()["version"].as_str().is_some());
    // The names of words come back as they went: quotes, a backslash, control characters, and characters beyond ASCII.
    let words: Value = ["\"", "\\", "\t", "é", "\u{1f600}"].into();
    let asked = Value::object([("tokens", words.clone()), ("embedding", matrix(5, 4, 0).into())]);
    assert_eq!(client().ask("/embeddings", &asked).unwrap()["tokens"], words);
}

#[test]
fn values() {
    let text = r#"{"a":[1,-2.5,1e300,null],"b":{"c":[],"d":{}},"e":"\"\\\u0009é😀","f":true}"#;
    let value: Value = text.parse().unwrap();
    assert_eq!(value.to_string(), text);
    assert_eq!(
        r#" { "x" : [ "\ud83d\ude00\n\/" , 0.5e1 ] } "#.parse::<Value>().unwrap().to_string(),
        "{\"x\":[\"😀\\u000a/\",5]}"
    );
    let deep = "[".repeat(100_000);
    for wrong in ["", "[1,]", "[1 2]", "{\"a\"}", "inf", "nan", "\"", "\"\\u12\"", "[] []", "{,}", "-", &deep] {
        assert!(wrong.parse::<Value>().is_err(), "{wrong:.20} is JSON");
    }
    for (tensor, expected) in [
        (Tensor::new(&[], vec![1.0]), "1"),
        (Tensor::new(&[2, 0], Vec::<f32>::new()), "[[],[]]"),
        (Tensor::new(&[0], Vec::<f64>::new()), "[]"),
        (Tensor::new(&[2, 3, 0], Vec::<f64>::new()), "[[[],[],[]],[[],[],[]]]"),
        (Tensor::new(&[2, 1, 2], vec![1_i64, 2, 3, 4]), "[[[1,2]],[[3,4]]]"),
    ] {
        assert_eq!(Value::from(&tensor).to_string(), expected);
        assert_eq!(expected.parse::<Value>().unwrap().tensor().unwrap().shape, tensor.shape);
    }
    for wrong in ["[[1,2],[3]]", "[[1,2],[3],[4,5,6]]", "[[1],2]", "[1,[2]]", "[\"1\"]", "{}"] {
        assert!(wrong.parse::<Value>().unwrap().tensor().is_err(), "{wrong} is a tensor");
    }
}

#[test]
fn comparison_of_bytes() {
    let right = attention(|_, _| true)[2].clone();
    let mut wrong = right.clone();
    wrong[0][0] += 1.0;
    for (output, is_right) in [(right, true), (wrong, false)] {
        let mut questions = tensors(f32s);
        questions.push(("expected.output", f32s(&output)));
        let comparison = client().compare("/attention", &questions, &[("scale", 0.5.into())]).unwrap();
        assert_eq!(comparison["within_tolerance"], is_right.into());
    }
}

#[test]
fn binary_tensors() {
    for (twice, bound) in [(false, 1e-5), (true, 1e-13)] {
        let mut questions = if twice { tensors(f64s) } else { tensors(f32s) };
        questions.push(("mask", mask()));
        let results = client().tensors("/attention", &questions, &[("return", NAMES.into())]).unwrap();
        for (name, expected) in NAMES.iter().zip(attention(masked)) {
            near(&results[*name], &expected, bound);
            assert_eq!(matches!(results[*name].data, Data::F64(_)), twice);
        }
    }
}

#[test]
fn whole_numbers_and_options() {
    let mut questions = tensors(f32s);
    questions.push(("lengths", Tensor::new(&[1], vec![4_i64])));
    let names = ["weights", "top_k", "statistics"];
    let options =
        [("causal", "bottom_right".into()), ("window", [2, 0].into()), ("top_k", 2.into()), ("return", names.into())];
    let results = client().tensors("/attention", &questions, &options).unwrap();
    let weights = &attention(|i, j| i <= j + 1 && j <= i + 1 && j < 4)[1];
    near(&results["weights"], weights, 1e-5);
    let best = |row: &Vec<f64>| {
        let mut order: Vec<i64> = (0..5).collect();
        order.sort_by(|&a, &b| row[b as usize].partial_cmp(&row[a as usize]).unwrap());
        order[..2].to_vec()
    };
    assert_eq!(results["top_k.indices"], Tensor::new(&[3, 2], weights.iter().flat_map(best).collect::<Vec<i64>>()));
    assert!(results["statistics.variance.Q"].shape.is_empty());
}

#[test]
fn errors() {
    let mut asked = tensors(f32s);
    asked[1].1 = Tensor::new(&[1, 1], vec![1_f32]);
    let [q, _, v] = given();
    let wrong = Value::object([("Q", q.1.into()), ("K", [[1]].into()), ("V", v.1.into())]);
    for result in [client().ask("/attention", &wrong).map(drop), client().tensors("/attention", &asked, &[]).map(drop)]
    {
        let error = refused(result, 422, "K has 1 column but Q has 4");
        assert_eq!(error.pointer, "/K");
        assert!(!error.request_id.is_empty());
        assert_eq!(error.to_string(), format!("422 {} /K", error.detail));
    }
    refused(client().ask("/v2/models/attention/infer", &Value::object([])), 422, "inputs is missing");
    refused(client().ask("/nothing", &Value::Null), 404, "there is nothing at /nothing");
    let beyond = Tensor::new(&[1], vec![(1_i64 << 53) + 1]);
    for wrong in [f64::NAN.into(), f64::INFINITY.into(), (-(1_i64 << 53) - 1).into(), (&beyond).into()] {
        let asked = Value::object([("X", [[Value::from(1), wrong]].into())]);
        refused(client().ask("/attention", &asked), 0, "is NaN, infinite or an integer beyond 2^53");
    }
    let asked = Value::object([("X", [[1]].into()), ("heads", (1_i64 << 53).into())]);
    refused(client().ask("/attention", &asked), 422, "heads must be");
    let asked = request(vec![]);
    refused(
        Client::new("http://127.0.0.1:1").ask("/attention", &asked),
        0,
        "no answer from http://127.0.0.1:1: Connection refused",
    );
    refused(Client::new("https://127.0.0.1:1").ask("/attention", &asked), 0, "the URL does not begin with http://");
    for path in ["/a b", "/attention HTTP/1.1\r\nX: y", "/é"] {
        refused(client().ask(path, &asked), 0, "a character that cannot be sent");
    }
    let mut patient = client();
    patient.timeout = Duration::MAX;
    patient.ask("/version", &Value::Null).unwrap();
    patient.api_key = Some("key\r\nX: y".into());
    refused(patient.ask("/version", &Value::Null), 0, "a character that cannot be sent");
    let misfit = [("Q", Tensor::new(&[2, 3], vec![1_f32]))];
    refused(client().tensors("/attention", &misfit, &[]), 0, "the data of Q does not fit its shape [2, 3]");
}

#[test]
fn stub() {
    let stub = match var("ATTENTIOND_STUB_URL") {
        Ok(stub) => stub,
        Err(_) => return,
    };
    let at = |kind: &str, timeout: u64| {
        let mut client = Client::new(&format!("{stub}/{kind}"));
        client.api_key = Some("secret\n".into());
        client.timeout = Duration::from_millis(timeout);
        client.ask("/attention", &request(vec![]))
    };
    let tensors_at = |kind: &str| Client::new(&format!("{stub}/{kind}")).tensors("/attention", &tensors(f32s), &[]);
    let order = Client::new(&format!("{stub}/order"));
    order.ask("/attention", &request(vec![("causal", true.into())])).unwrap();
    order.tensors("/attention", &tensors(f32s), &[("causal", true.into())]).unwrap();
    let mut large = Client::new(&format!("{stub}/large"));
    large.max_answer = 1 << 20;
    refused(large.ask("/attention", &request(vec![])), 200, "the answer has more than 1048576 bytes");
    let output = &attention(|_, _| true)[2];
    for kind in ["busy", "late", "key", "chunked", "reused", "reused", "open", "open", "early"] {
        near(&at(kind, 5_000).unwrap()["output"].tensor().unwrap(), output, 1e-5);
    }
    near(&tensors_at("chunked").unwrap()["output"], output, 1e-5);
    refused(at("always", 60_000), 503, "too much work waits");
    refused(at("lasting", 60_000), 503, "too much work waits");
    refused(at("html", 60_000), 502, "Bad Gateway");
    refused(at("html", 60_000), 200, "cannot be read");
    for kind in ["silent", "drip", "drip", "drip"] {
        refused(at(kind, 500), 0, "timed out");
    }
    let mut client = Client::new(&format!("{stub}/slow"));
    client.timeout = Duration::from_millis(500);
    let long = Tensor::new(&[1 << 17, 64], vec![0_f32; 1 << 23]);
    refused(client.tensors("/attention", &[("X", long)], &[]), 0, "timed out");
    refused(at("closed", 60_000), 0, "no answer");
    refused(at("cut", 60_000), 0, "ended early");
    refused(tensors_at("cut"), 0, "ended early");
    refused(tensors_at("half"), 200, "output has the type BF16");
    refused(at("moved", 60_000), 302, "Found");
    refused(at("moved", 60_000), 307, "Temporary Redirect");
    refused(at("deep", 60_000), 200, "cannot be read");
    refused(at("deep", 60_000), 422, "Unprocessable");
    refused(tensors_at("deep"), 200, "cannot be read");
    assert_eq!(refused(at("lists", 60_000), 422, "Unprocessable").pointer, "");
    for _ in 0..15 {
        refused(tensors_at("broken"), 200, "cannot be read");
    }
}
