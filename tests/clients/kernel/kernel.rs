//! kernel.rs writes kernel.safetensors for a kernel in Rust: rustc kernel.rs && ./kernel

/// Its name is such as expected.lse. Its numbers are in the order of the rows.
struct Tensor<'a>(&'a str, &'a [usize], &'a [f64]);

/// Writes tensors and options into a file of safetensors.
fn save(path: &str, options: &str, tensors: &[Tensor]) -> std::io::Result<()> {
    let mut head = format!(r#"{{"__metadata__": {{{options}}}"#);
    let mut numbers = Vec::new();
    for Tensor(name, shape, data) in tensors {
        let begin = numbers.len();
        numbers.extend(data.iter().flat_map(|number| number.to_le_bytes()));
        let offsets = [begin, numbers.len()];
        head += &format!(r#", "{name}": {{"dtype": "F64", "shape": {shape:?}, "#);
        head += &format!(r#""data_offsets": {offsets:?}}}"#);
    }
    head += "}";
    let length = (head.len() as u64).to_le_bytes();
    std::fs::write(path, [&length, head.as_bytes(), &numbers].concat())
}

fn main() -> std::io::Result<()> {
    let options = r#""dtype": "float64", "return": "[\"comparison\"]", "fail_on_difference": "true""#;
    // One query and two keys, and what a kernel made of them. Put your slices in their place.
    let g = 1.060660171779821;
    let tensors = [
        Tensor("Q", &[1, 2], &[1., 1.]),
        Tensor("K", &[2, 2], &[1., 0., 0., 1.]),
        Tensor("V", &[2, 2], &[5., 6., 7., 8.]),
        Tensor("grad_output", &[1, 2], &[1., 2.]),
        Tensor("expected.output", &[1, 2], &[6., 7.]),
        Tensor("expected.lse", &[1], &[1.400253961746493]),
        Tensor("expected.grad_Q", &[1, 2], &[-g, g]),
        Tensor("expected.grad_K", &[2, 2], &[-g, -g, g, g]),
        Tensor("expected.grad_V", &[2, 2], &[0.5, 1., 0.5, 1.]),
    ];
    save("kernel.safetensors", options, &tensors)
}
