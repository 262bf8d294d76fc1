// One hash decides the partition of a key, the same in every language: the first eight bytes of SHA-256 over the key
// in UTF-8, as a number, modulo the partitions. SHA-256 is written out here because Web Crypto has no synchronous one.

const ROUND_CONSTANTS = firstPrimes(64).map((prime) => fraction(Math.cbrt(prime)));
const START = firstPrimes(8).map((prime) => fraction(Math.sqrt(prime)));

/** The partition of a key in a queue with so many partitions. `qbull.partition_of` gives the same in Python. */
export function partitionOf(key: string, partitions: number): number {
  if (!Number.isInteger(partitions) || partitions < 1) {
    throw new RangeError(`partitions=${partitions}: give a whole number from 1`);
  }
  if (key.length === 0 || /\p{Surrogate}/u.test(key)) {
    throw new RangeError("a key is a text that is not empty and valid Unicode");
  }
  const [high, low] = sha256(new TextEncoder().encode(key));
  return Number(((BigInt(high!) << 32n) | BigInt(low!)) % BigInt(partitions));
}

function firstPrimes(count: number): number[] {
  const found: number[] = [];
  for (let n = 2; found.length < count; n++) {
    if (found.every((prime) => n % prime !== 0)) found.push(n);
  }
  return found;
}

/** The first 32 bits behind the point. */
function fraction(n: number): number {
  return Math.floor((n - Math.floor(n)) * 2 ** 32);
}

function rotate(word: number, by: number): number {
  return (word >>> by) | (word << (32 - by));
}

/** The digest as eight words of 32 bits. */
function sha256(message: Uint8Array): number[] {
  const length = ((message.length + 8) >> 6) * 64 + 64;
  const padded = new DataView(new ArrayBuffer(length));
  message.forEach((byte, at) => padded.setUint8(at, byte));
  padded.setUint8(message.length, 0x80);
  padded.setBigUint64(length - 8, BigInt(message.length) * 8n);

  let state = [...START];
  const words = new Array<number>(64);
  for (let block = 0; block < length; block += 64) {
    for (let at = 0; at < 16; at++) words[at] = padded.getUint32(block + at * 4);
    for (let at = 16; at < 64; at++) {
      const [a, b] = [words[at - 15]!, words[at - 2]!];
      const first = rotate(a, 7) ^ rotate(a, 18) ^ (a >>> 3);
      const second = rotate(b, 17) ^ rotate(b, 19) ^ (b >>> 10);
      words[at] = (words[at - 16]! + first + words[at - 7]! + second) | 0;
    }
    let [a, b, c, d, e, f, g, h] = state as [number, number, number, number, number, number, number, number];
    for (let at = 0; at < 64; at++) {
      const mixed = (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g));
      const first = (h + mixed + ROUND_CONSTANTS[at]! + words[at]!) | 0;
      const second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
    }
    state = [a, b, c, d, e, f, g, h].map((word, at) => (word + state[at]!) | 0);
  }
  return state.map((word) => word >>> 0);
}
