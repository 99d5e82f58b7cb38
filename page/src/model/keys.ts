//! Keys of hosts as texts: made here, of the browser's randomness, and sent to the target once.
//!
//! The form is that of nvme-cli and of ebof's command line: `DHHC-1:hh:BASE64:` and
//! `NVMeTLSkey-1:hh:BASE64:`, where the bytes are the key and its CRC-32.

/** What a key is for, as the service calls it. */
export type KeyKind = "DHCHAP" | "DHCHAPController" | "TLS";

/** The hash that is named in the text; a key is as long as it. */
export type KeyHash = 1 | 2 | 3;

const BYTES: Record<KeyHash, number> = { 1: 32, 2: 48, 3: 64 };

export const HASHES: [KeyHash, string][] = [
  [1, "SHA-256, 256 bits"],
  [2, "SHA-384, 384 bits"],
  [3, "SHA-512, 512 bits"],
];

/** The hashes that a key of a kind can have. */
export function hashesOf(kind: KeyKind): [KeyHash, string][] {
  return kind === "TLS" ? HASHES.slice(0, 2) : HASHES;
}

/** CRC-32 as in Ethernet and zip (reflected, 0xEDB88320). */
export function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

export function keyText(kind: KeyKind, hash: KeyHash, key: Uint8Array): string {
  const bytes = new Uint8Array(key.length + 4);
  bytes.set(key);
  new DataView(bytes.buffer).setUint32(key.length, crc32(key), true);
  const text = btoa(String.fromCharCode(...bytes));
  bytes.fill(0);
  return `${kind === "TLS" ? "NVMeTLSkey-1" : "DHHC-1"}:0${hash}:${text}:`;
}

/** Another key, of random bytes. */
export function generateKey(kind: KeyKind, hash: KeyHash): string {
  const key = crypto.getRandomValues(new Uint8Array(BYTES[hash]));
  const text = keyText(kind, hash, key);
  key.fill(0);
  return text;
}
