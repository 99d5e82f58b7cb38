//! Deliveries to a listener of the test's own.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpListener;

use super::*;

/// Answers one request with a status, and returns its head and body.
fn listener(answer: &'static str) -> (u16, std::thread::JoinHandle<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            reader.read_line(&mut head).unwrap();
        }
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap()];
        reader.read_exact(&mut body).unwrap();
        stream
            .write_all(format!("HTTP/1.1 {answer}\r\nlocation: /other\r\ncontent-length: 0\r\n\r\n").as_bytes())
            .unwrap();
        (head, String::from_utf8(body).unwrap())
    });
    (port, served)
}

fn sent(answer: &'static str) -> (Result<(), String>, String, String) {
    let (port, served) = listener(answer);
    let destination = format!("http://127.0.0.1:{port}/events?a=b");
    let post = Post { destination: &destination, headers: &[], verify: true, body: "{\"Events\":[]}" };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let outcome = runtime.block_on(post.send());
    let (head, body) = served.join().unwrap();
    (outcome, head, body)
}

#[test]
fn a_delivery_is_a_post_that_follows_no_redirect() {
    let (outcome, head, body) = sent("204 No Content");
    assert_eq!((outcome, body.as_str()), (Ok(()), "{\"Events\":[]}"));
    assert!(head.starts_with("POST /events?a=b HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"));
    for answer in ["302 Found", "404 Not Found", "500 Oops"] {
        assert!(sent(answer).0.unwrap_err().starts_with("it answers"), "{answer}");
    }
}
