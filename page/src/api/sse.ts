//! The format of server-sent events, without a connection.

/** The most characters of one message. */
const MESSAGE_MAX = 4 << 20;

/** Splits a stream of text into the messages of the event stream format. */
export class Parser {
  #rest = "";
  #data: string[] = [];
  #length = 0;
  lastId: string | undefined;

  push(text: string): string[] {
    const out: string[] = [];
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      this.#length += line.length;
      if (line === "") {
        if (this.#data.length) out.push(this.#data.join("\n"));
        this.#data = [];
        this.#length = 0;
      } else if (line.startsWith("data:")) this.#data.push(line.slice(5).replace(/^ /, ""));
      else if (line.startsWith("id:")) this.lastId = line.slice(3).trim();
    }
    if (this.#rest.length + this.#length > MESSAGE_MAX) throw new Error("a message of the event stream is too long");
    return out;
  }
}
