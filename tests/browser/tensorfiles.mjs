// tensorfiles.mjs makes .npy and .safetensors files byte by byte, as their formats say.

const bytes = (data) => (ArrayBuffer.isView(data) ? Buffer.from(data.buffer, data.byteOffset, data.byteLength) : Buffer.from(data));

// Returns a .npy file. descr: NumPy's name of the type. header: the text of the header, if it is not the usual one.
export function npyBytes(descr, shape, data, { fortran = false, major = 1, minor = 0, header } = {}) {
  const tuple = shape.length === 1 ? `(${shape[0]},)` : `(${shape.join(', ')})`;
  const text = header ?? `{'descr': '${descr}', 'fortran_order': ${fortran ? 'True' : 'False'}, 'shape': ${tuple}, }\n`;
  const size = Buffer.alloc(major === 1 ? 2 : 4);
  if (major === 1) size.writeUInt16LE(text.length);
  else size.writeUInt32LE(text.length);
  return Buffer.concat([Buffer.from('\x93NUMPY', 'latin1'), Buffer.of(major, minor), size, Buffer.from(text), bytes(data)]);
}

// Returns a .safetensors file. header: an object, or its text.
export function safetensorsBytes(header, data = []) {
  const text = Buffer.from(typeof header === 'string' ? header : JSON.stringify(header));
  const size = Buffer.alloc(8);
  size.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([size, text, bytes(data)]);
}

// Returns the entry of a tensor in the header of a .safetensors file.
export const entry = (dtype, shape, begin, end) => ({ dtype, shape, data_offsets: [begin, end] });
