// draw.mjs draws what the tests of modules compute with. The same seed draws the same.

// Returns functions that draw: random() a number in [0, 1), whole(least, most), pick(list), numbers(count) in (−2, 2), matrix(rows, cols).
export function drawing(seed) {
  let state = seed;
  const random = () => ((state = (state * 48271) % 2147483647) - 1) / 2147483646;
  const whole = (least, most) => least + Math.floor(random() * (most - least + 1));
  const pick = (list) => list[whole(0, list.length - 1)];
  const numbers = (count) => Float64Array.from({ length: count }, () => 4 * random() - 2);
  const matrix = (rows, cols) => ({ rows, cols, data: numbers(rows * cols) });
  return { random, whole, pick, numbers, matrix };
}

// Returns nested arrays of a shape that hold the numbers of a list in row-major order.
export function nestedOf(list, shape) {
  if (!shape.length) return list[0];
  const size = list.length / shape[0];
  return Array.from({ length: shape[0] }, (_, at) => nestedOf(list.slice(at * size, (at + 1) * size), shape.slice(1)));
}
