//! What a request shows of who sends it: the token of a session, or a name and a password
//! (DSP0266, Authentication); and whether a page of somebody else has made a browser send it.

use base64::Engine as _;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use hyper::{Method, Uri, Version};

/// The header with the token of a session.
pub(super) const X_AUTH_TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// The header in which browsers say where a request comes from.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The longest that is looked at, bytes: a name and a password in Base64 are shorter.
const BYTES_MAX: usize = 2048;

/// What a request shows.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Credentials {
    /// Nothing.
    None,
    /// Something that is not understood.
    Malformed,
    Token(String),
    Basic {
        name: String,
        password: String,
    },
}

impl Credentials {
    /// Those of a request. A token comes first.
    pub(super) fn from_headers(headers: &HeaderMap) -> Self {
        match (single(headers, &X_AUTH_TOKEN), single(headers, &AUTHORIZATION)) {
            (Found::Nothing, Found::Nothing) => Self::None,
            (Found::One(token), _) => Self::Token(token.to_owned()),
            (Found::Nothing, Found::One(text)) => basic(text).unwrap_or(Self::Malformed),
            _ => Self::Malformed,
        }
    }
}

enum Found<'a> {
    Nothing,
    One(&'a str),
    Malformed,
}

fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Found<'a> {
    let mut all = headers.get_all(name).iter();
    let Some(value) = all.next() else { return Found::Nothing };
    let text = value.to_str().ok().filter(|text| text.len() <= BYTES_MAX && all.next().is_none());
    text.map_or(Found::Malformed, Found::One)
}

/// RFC 7617.
fn basic(text: &str) -> Option<Credentials> {
    let (scheme, encoded) = text.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded.trim()).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let (name, password) = text.split_once(':')?;
    Some(Credentials::Basic { name: name.to_owned(), password: password.to_owned() })
}

/// Whether a request that may change something was made by a page of another origin. Browsers show
/// credentials of HTTP Basic on their own, so that such a page could have them used.
pub(super) fn is_cross_site(method: &Method, headers: &HeaderMap) -> bool {
    if method.is_safe() {
        return false;
    }
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if text(&SEC_FETCH_SITE).is_some_and(|site| site != "same-origin" && site != "none") {
        return true;
    }
    let Some(origin) = text(&ORIGIN) else { return false };
    let host = text(&HOST).unwrap_or_default();
    let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
    authority.is_empty() || !authority.eq_ignore_ascii_case(host)
}

/// Whether a request says which host it is for, once: whoever is between could take another one of
/// two (RFC 9112, Host and :authority). HTTP/1.0 may leave it out.
pub(super) fn has_one_host(version: Version, headers: &HeaderMap) -> bool {
    let hosts = headers.get_all(HOST).iter().count();
    hosts == 1 || (hosts == 0 && version < Version::HTTP_11)
}

/// Whether the host of a request is this machine, by a name that nobody else resolves. Without
/// TLS, a page of somebody else could otherwise reach a loopback address by a name of its own.
pub(super) fn is_for_this_machine(uri: &Uri, headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).or_else(|| uri.host()).unwrap_or_default();
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _port)) => address,
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&HeaderName, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| ((*name).clone(), value.parse().unwrap())).collect()
    }

    fn authorization(text: &str) -> Credentials {
        Credentials::from_headers(&headers(&[(&AUTHORIZATION, text)]))
    }

    #[test]
    fn a_token_or_a_password_is_found() {
        assert!(Credentials::from_headers(&HeaderMap::new()) == Credentials::None);
        let basic = |name: &str, password: &str| Credentials::Basic { name: name.into(), password: password.into() };
        assert!(authorization("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==") == basic("Aladdin", "open sesame"));
        assert!(authorization("bASIC YTpiOmM=") == basic("a", "b:c"));
        let both = [(&X_AUTH_TOKEN, "abc"), (&AUTHORIZATION, "Basic YTpiOmM=")];
        assert!(Credentials::from_headers(&headers(&both)) == Credentials::Token("abc".into()));
    }

    #[test]
    fn anything_else_is_malformed_and_not_nothing() {
        let long = format!("Basic {}", "A".repeat(BYTES_MAX));
        for text in ["", "Basic", "Basic ", "Basic !", "Basic QQ==", "Basic /w==", "Bearer YTpi", "Basic YTpi=", &long]
        {
            assert!(authorization(text) == Credentials::Malformed, "{text}");
        }
        let mut twice = headers(&[(&X_AUTH_TOKEN, "a")]);
        twice.append(X_AUTH_TOKEN, "b".parse().unwrap());
        assert!(Credentials::from_headers(&twice) == Credentials::Malformed);
    }

    #[test]
    fn one_host_is_named() {
        let host = (&HOST, "box.example:8443");
        assert!(has_one_host(Version::HTTP_11, &headers(&[host])) && has_one_host(Version::HTTP_10, &HeaderMap::new()));
        assert!(!has_one_host(Version::HTTP_11, &HeaderMap::new()));
        let mut twice = headers(&[host]);
        twice.append(HOST, "box.example:8443".parse().unwrap());
        assert!(!has_one_host(Version::HTTP_11, &twice) && !has_one_host(Version::HTTP_10, &twice));
    }

    #[test]
    fn requests_of_other_pages_are_recognized() {
        let is = |method: Method, lines: &[(&HeaderName, &str)]| is_cross_site(&method, &headers(lines));
        let host = (&HOST, "box.example:8443");
        for foreign in ["https://evil.example", "null", "https://box.example", "", "https://box.example:8443.evil"] {
            assert!(is(Method::POST, &[host, (&ORIGIN, foreign)]), "{foreign}");
            assert!(!is(Method::GET, &[host, (&ORIGIN, foreign)]));
        }
        assert!(!is(Method::POST, &[host]) && !is(Method::POST, &[host, (&ORIGIN, "https://Box.example:8443")]));
        for (site, refused) in [("cross-site", true), ("same-site", true), ("same-origin", false), ("none", false)] {
            assert_eq!(is(Method::DELETE, &[host, (&SEC_FETCH_SITE, site)]), refused, "{site}");
        }
    }

    #[test]
    fn without_tls_only_this_machine_is_meant() {
        let is = |host: &str| is_for_this_machine(&Uri::from_static("/"), &headers(&[(&HOST, host)]));
        for own in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"] {
            assert!(is(own), "{own}");
        }
        for other in ["", "evil.example", "evil.example:8080", "192.0.2.1", "[2001:db8::1]:1", "127.0.0.1.evil.example"]
        {
            assert!(!is(other), "{other}");
        }
    }
}
