//! The web page, as it was embedded when the program was built: which file a path is, in which
//! coding it is sent, and with which headers. It is the same for everybody, so that no account is
//! needed; what it shows, it asks Redfish for. Serving HTTP is not here.

use axum::body::Bytes;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderValue, Response, StatusCode};

/// A file of the page. `build.rs` writes the table.
struct File {
    name: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
    brotli: &'static [u8],
}

static FILES: &[File] = include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// Nothing but the page's own files runs in it, and it talks to nobody else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What is at `/` of a program that was built without the page.
const MISSING: &str = "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>ebof</title>\n\
<h1>ebof</h1>\n\
<p>This program was built without its web page. Build the page, then the program again:</p>\n\
<pre>make page build</pre>\n\
<p>That needs Node.js 18 or later. Redfish is served all the same, at \
<a href=\"/redfish/v1/\">/redfish/v1/</a>.</p>\n</html>\n";

/// The answer to a GET of `path`; `accept_encoding` is that header's value. Paths of Redfish are
/// not the page's, and must not come here.
pub(crate) fn answer(path: &str, accept_encoding: Option<&str>) -> Response<Bytes> {
    find(FILES, path, accept_encoding.unwrap_or_default())
}

fn find(files: &'static [File], path: &str, accept_encoding: &str) -> Response<Bytes> {
    let name = match path {
        "/" => "index.html",
        _ => path.strip_prefix('/').unwrap_or_default(),
    };
    let Some(file) = files.iter().find(|file| file.name == name) else {
        return if path == "/" {
            respond(StatusCode::OK, "text/html; charset=utf-8", Bytes::from_static(MISSING.as_bytes()))
        } else {
            let text = Bytes::from_static(b"There is nothing here. The page is at /, Redfish at /redfish/v1/.\n");
            respond(StatusCode::NOT_FOUND, "text/plain; charset=utf-8", text)
        };
    };
    let (coding, content) = if accepts(accept_encoding, "br") {
        (Some("br"), file.brotli)
    } else if accepts(accept_encoding, "gzip") {
        (Some("gzip"), file.gzip)
    } else {
        (None, file.plain)
    };
    let mut response = respond(StatusCode::OK, media_type(name), Bytes::from_static(content));
    let headers = response.headers_mut();
    if let Some(coding) = coding {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding));
    }
    headers.insert(VARY, HeaderValue::from_name(ACCEPT_ENCODING));
    // The names of the others have a digest of their content; what has not is asked for again.
    let lasting = name.starts_with("app-");
    let cache = if lasting { "public, max-age=31536000, immutable" } else { "no-cache" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}

/// A response with the headers that each one has.
fn respond(status: StatusCode, media_type: &'static str, content: Bytes) -> Response<Bytes> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Whether Accept-Encoding names a coding, and not with the weight 0. HTTP Semantics, 12.5.3.
fn accepts(accept_encoding: &str, coding: &str) -> bool {
    accept_encoding.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let is_named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(coding));
        let is_refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.and_then(|weight| weight.trim().parse::<f32>().ok()).is_some_and(|weight| weight <= 0.0)
        });
        is_named && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    static BUILT: &[File] = &[
        File { name: "app-0123456789ab.js", plain: b"plain", gzip: b"gzip", brotli: b"brotli" },
        File { name: "index.html", plain: b"<html>", gzip: b"g", brotli: b"b" },
    ];

    fn header(response: &Response<Bytes>, name: &str) -> String {
        response.headers().get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_file_is_sent_in_the_best_coding_that_is_accepted() {
        for (accepted, coding, content) in [
            ("gzip, deflate, br, zstd", "br", &b"brotli"[..]),
            ("gzip", "gzip", b"gzip"),
            ("br;q=0, GZIP;q=0.5", "gzip", b"gzip"),
            ("identity", "", b"plain"),
            ("", "", b"plain"),
            ("brotli, gzipped;q=1", "", b"plain"),
        ] {
            let response = find(BUILT, "/app-0123456789ab.js", accepted);
            assert_eq!(header(&response, "content-encoding"), coding, "{accepted}");
            assert_eq!(response.body(), content, "{accepted}");
            assert_eq!(header(&response, "vary"), "accept-encoding");
            assert_eq!(header(&response, "content-type"), "text/javascript; charset=utf-8");
        }
    }

    #[test]
    fn only_names_with_a_digest_are_kept_by_browsers() {
        assert!(header(&find(BUILT, "/app-0123456789ab.js", ""), "cache-control").contains("immutable"));
        assert_eq!(header(&find(BUILT, "/", "br"), "cache-control"), "no-cache");
        assert_eq!(find(BUILT, "/", "br").body(), &b"b"[..]);
    }

    #[test]
    fn nothing_but_the_files_is_there() {
        for path in ["/app.js", "/../Cargo.toml", "//", "", "/index.html/", "/%2e%2e/etc/passwd", "/index.html.gz"] {
            let response = find(BUILT, path, "br");
            assert_eq!(response.status(), StatusCode::NOT_FOUND, "{path}");
            assert_eq!(header(&response, "content-encoding"), "");
        }
    }

    #[test]
    fn every_answer_forbids_foreign_scripts_and_frames() {
        for path in ["/", "/app-0123456789ab.js", "/none"] {
            for files in [BUILT, &[]] {
                let response = find(files, path, "");
                assert!(
                    header(&response, "content-security-policy").starts_with("default-src 'none'; script-src 'self'")
                );
                assert_eq!(header(&response, "x-content-type-options"), "nosniff");
            }
        }
    }

    #[test]
    fn a_program_without_the_page_says_how_to_build_it() {
        let response = find(&[], "/", "br");
        assert_eq!(response.status(), StatusCode::OK);
        assert!(String::from_utf8_lossy(response.body()).contains("make page build"));
        assert_eq!(find(&[], "/app-0123456789ab.js", "br").status(), StatusCode::NOT_FOUND);
    }

    /// The page refers to files by the names that they have; a name that is missing is a page that
    /// stays empty.
    #[test]
    fn what_is_embedded_is_whole() {
        let index = find(FILES, "/", "");
        if FILES.is_empty() {
            println!("SKIPPED: the program was built without the page (make page)");
            return;
        }
        let text = String::from_utf8(index.body().to_vec()).unwrap();
        for file in FILES.iter().filter(|file| file.name != "index.html") {
            assert!(text.contains(&format!("\"/{}\"", file.name)), "{}", file.name);
        }
        assert!(!text.contains("<style") && !text.contains(" style=") && !text.contains("onload"), "{text}");
    }
}
