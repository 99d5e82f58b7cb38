//! Sends events and metric reports to the destinations of subscriptions: one request at a time for
//! each, without following redirects, and whatever the answer says.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ebof_cli::Proven;
use ebof_manage::events::Wake;
use ebof_redfish::{Delivery, Outcome, Service};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// How often it is looked whether one has to be tried again, or whether there are new reports.
const INTERVAL: Duration = Duration::from_secs(1);

/// Where Linux distributions have the certificates that the machine trusts.
const TRUSTED: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Delivers until the process ends. A delivery that takes longer than `time` has failed.
pub(super) async fn run(service: Arc<Service>, time: Duration) {
    let happened = Arc::new(Notify::new());
    let notified = Arc::clone(&happened);
    let wake: Arc<Wake> = Arc::new(move || notified.notify_one());
    service.parts().events.subscribe(Arc::downgrade(&wake));
    loop {
        let _ = timeout(INTERVAL, happened.notified()).await;
        let looked = Arc::clone(&service);
        // It takes locks of the target.
        let due = move || Delivery::due(looked.parts(), Instant::now());
        let Ok(due) = tokio::task::spawn_blocking(due).await else { return };
        for delivery in due {
            tokio::spawn(deliver(Arc::clone(&service), delivery, time, Arc::clone(&happened)));
        }
    }
}

/// Tells `ended` when it is over: there may be more for the same subscription.
async fn deliver(service: Arc<Service>, delivery: Delivery, time: Duration, ended: Arc<Notify>) {
    let post = Post {
        destination: &delivery.destination,
        headers: &delivery.headers,
        verify: delivery.verify,
        body: &delivery.body,
    };
    let sent = post.send_within(time).await;
    let is_delivered = sent.is_ok();
    // It takes a lock, and may store that the subscription has ended.
    let finish = move || {
        let outcome = delivery.done(&service.parts().subscriptions, is_delivered, Instant::now());
        (delivery, outcome)
    };
    let Ok((delivery, outcome)) = tokio::task::spawn_blocking(finish).await else { return };
    ended.notify_one();
    let Err(why) = sent else { return };
    let what = match outcome {
        Some(Outcome::Suspended) => "the subscription is suspended",
        Some(Outcome::Terminated) => "the subscription has ended",
        _ => "it is tried again later",
    };
    let Delivery { subscription, destination, .. } = &delivery;
    tracing::warn!("events of subscription {subscription} cannot be delivered to {destination}: {why}; {what}");
}

/// A request that is to be sent.
struct Post<'d> {
    destination: &'d str,
    headers: &'d [(String, String)],
    verify: bool,
    body: &'d str,
}

impl Post<'_> {
    async fn send_within(&self, time: Duration) -> Result<(), String> {
        timeout(time, self.send()).await.unwrap_or_else(|_elapsed| Err("it takes too long".to_owned()))
    }

    /// Sends it, and waits for the head of the answer.
    async fn send(&self) -> Result<(), String> {
        let uri: Uri = self.destination.parse().map_err(|_no_uri| "it is no URI".to_owned())?;
        let is_https = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        let stream = TcpStream::connect((host, port)).await.map_err(|error| error.to_string())?;
        let request = self.request(&uri)?;
        if !is_https {
            return exchange(stream, request).await;
        }
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let config = config(self.verify)?;
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| error.to_string())?;
        exchange(stream, request).await
    }

    fn request(&self, uri: &Uri) -> Result<Request<Full<Bytes>>, String> {
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::new(Full::new(Bytes::from(self.body.to_owned())));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = path.parse().map_err(|_no_path| "its path is none".to_owned())?;
        let headers = request.headers_mut();
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        for (name, value) in self.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
                headers.append(name, value);
            }
        }
        headers.insert(HOST, HeaderValue::from_str(authority).map_err(|error| error.to_string())?);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(request)
    }
}

async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> Result<(), String> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // It ends with the sender.
    let connection = tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| error.to_string());
    connection.abort();
    let status = response?.status();
    if status.is_success() { Ok(()) } else { Err(format!("it answers {status}")) }
}

/// How TLS is spoken with a destination.
fn config(verify: bool) -> Result<Arc<ClientConfig>, String> {
    static VERIFYING: Trusted = Trusted::new();
    static TRUSTING: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if verify {
        return VERIFYING.config(&TRUSTED.map(Path::new));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    // The subscription says so.
    let config =
        builder(&provider)?.dangerous().with_custom_certificate_verifier(Proven::by(&provider)).with_no_client_auth();
    Ok(Arc::clone(TRUSTING.get_or_init(|| Arc::new(config))))
}

fn builder(provider: &Arc<CryptoProvider>) -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, String> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider));
    builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())
}

/// What the machine trusts, as long as its files are the same: an authority that is added or
/// withdrawn counts from the next delivery on.
struct Trusted(Mutex<Option<(Stamps, Arc<ClientConfig>)>>);

/// Which files there are: inode, size and time of change of each.
type Stamps = Vec<Option<(u64, u64, i64, i64)>>;

impl Trusted {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    fn config(&self, files: &[&Path]) -> Result<Arc<ClientConfig>, String> {
        let stamp = |file: &&Path| {
            let metadata = std::fs::metadata(file).ok()?;
            Some((metadata.ino(), metadata.size(), metadata.ctime(), metadata.ctime_nsec()))
        };
        // Before they are read: what changes meanwhile is read again.
        let stamps: Stamps = files.iter().map(stamp).collect();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, config)) = &*kept
            && *known == stamps
        {
            return Ok(Arc::clone(config));
        }
        let mut roots = RootCertStore::empty();
        for path in files {
            let certificates = CertificateDer::pem_file_iter(path).into_iter().flatten().flatten();
            roots.add_parsable_certificates(certificates);
        }
        if roots.is_empty() {
            let advice = "install ca-certificates, or set VerifyCertificate to false";
            return Err(format!("this machine trusts no certificate: {advice}"));
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = Arc::new(builder(&provider)?.with_root_certificates(roots).with_no_client_auth());
        *kept = Some((stamps, Arc::clone(&config)));
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
