//! Addresses of resources: what there can be, which methods it has, and for whom, all from one
//! table ([`routes`]); the identifiers in addresses, and the types of resources. What is shown and
//! done there is in the areas ([`Area`](crate::area::Area)); none of them is known here, so that
//! each can refer to all others.

pub(crate) mod id;
pub(crate) mod kinds;
mod parameters;
mod reports;
mod route;
mod routes;

use std::borrow::Cow;
use std::fmt;

use ebof_access::{Privilege, User};
use http::Method;

use id::is_target;
pub(crate) use id::{DEFAULT_POLICY, HOST_PREFIX, PLAIN, PRIMARY, is_function};
pub(crate) use parameters::{FabricKind, Log, OwnSchema, Registry};
pub(crate) use reports::ReportKind;
use route::{READ, Routed};
use routes::AREAS;
pub use routes::Place;
pub(crate) use routes::{
    AccountPlace, CertificatePlace, ChassisPlace, EventPlace, FabricPlace, KeyPlace, ManagerPlace, PlanPlace,
    RegistryPlace, RootPlace, SchemaPlace, SessionPlace, StoragePlace, SystemPlace, TaskPlace, TelemetryPlace,
    UpdatePlace,
};

/// Where every resource is.
const ROOT: &str = "/redfish/v1";

/// The longest path, bytes, and the most segments below the root.
const PATH_BYTES_MAX: usize = 4096;
const SEGMENTS_MAX: usize = 12;

impl Place {
    /// Its methods, without HEAD and OPTIONS.
    pub(crate) fn methods(&self) -> &'static [Method] {
        let methods = self.route().0.methods;
        if self.is_read_only() && methods.contains(&Method::GET) { READ } else { methods }
    }

    /// The privilege that a method needs; `None` needs no account.
    pub(crate) fn privilege(&self, method: &Method) -> Option<Privilege> {
        let route = self.route().0;
        match method {
            &Method::GET if self.is_of_audit() => Some(Privilege::ConfigureUsers),
            &Method::GET => route.privileges.get,
            method if route.methods.contains(method) => route.privileges.change,
            _ => route.privileges.other,
        }
    }

    /// Whether a user may use a method, as far as the address tells.
    pub(crate) fn permits(&self, method: &Method, user: &User) -> bool {
        // Everybody may read and change their own account.
        let is_own = matches!(self, Self::Account(AccountPlace::Account(id)) if *id == user.account.to_string());
        let is_by_self = is_own && matches!(*method, Method::GET | Method::PATCH) && user.may(Privilege::ConfigureSelf);
        is_by_self || self.privilege(method).is_none_or(|privilege| user.may(privilege))
    }

    /// Whether it is of the log that names everybody.
    pub(crate) fn is_of_audit(&self) -> bool {
        let Self::Manager(place) = self else { return false };
        use ManagerPlace as At;
        matches!(place, At::Log(Log::Audit) | At::Entries(Log::Audit) | At::Entry(Log::Audit, _))
    }

    /// Whether it cannot be changed, although others of its row can.
    fn is_read_only(&self) -> bool {
        match self {
            Self::Storage(StoragePlace::Controller(_, id)) => id == PRIMARY || id == PLAIN,
            Self::Fabrics(FabricPlace::Endpoint(FabricKind::Nvmeof, id)) => is_target(id),
            // Endpoints and connections of direct ports follow from the functions that are given to
            // them.
            Self::Fabrics(
                FabricPlace::Endpoints(kind)
                | FabricPlace::Endpoint(kind, _)
                | FabricPlace::Connections(kind)
                | FabricPlace::Connection(kind, _)
                | FabricPlace::AddVolume(kind, _)
                | FabricPlace::RemoveVolume(kind, _),
            ) => *kind == FabricKind::Pcie,
            // It is what a subsystem demands that is not told anything else.
            Self::Key(KeyPlace::Policy(id)) => id == DEFAULT_POLICY,
            // Nobody clears what tells of everybody.
            Self::Manager(ManagerPlace::ClearLog(log)) => *log == Log::Audit,
            _ => false,
        }
    }

    /// The type of its resource, without a version; empty for documents and actions.
    pub(crate) fn kind(&self) -> &'static str {
        self.route().0.kind
    }

    /// The last segment, which is the identifier of the resource; empty for the root.
    pub(crate) fn id(&self) -> &str {
        let (route, parameters) = self.route();
        route.segments(parameters).last().unwrap_or_default()
    }

    /// The addresses as documents list them: patterns below the root, each with an address of it
    /// whose identifiers are `x`. Actions of what can only be read are not listed.
    pub(crate) fn patterns() -> Vec<(String, Self)> {
        let mut all = Vec::new();
        for area in AREAS {
            for rows in area.chunk_by(|one, other| one.first_values() == other.first_values()) {
                let values = rows[0].first_values();
                let values: Vec<Option<&'static str>> =
                    if values.is_empty() { vec![None] } else { values.iter().copied().map(Some).collect() };
                let with = |value: Option<&'static str>| rows.iter().map(move |row| row.example(value));
                all.extend(values.into_iter().flat_map(with));
            }
        }
        let is_dead_action = |place: &Self| place.is_read_only() && !place.methods().contains(&Method::GET);
        all.retain(|(pattern, place)| !pattern.starts_with('/') && !is_dead_action(place));
        all
    }

    /// The address that a path names: with or without a slash at its end. Whether there is such a
    /// resource now is another question.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        let path = path.strip_suffix('/').unwrap_or(path);
        if path == "/redfish" {
            return Some(RootPlace::Versions.into());
        }
        let below = path.strip_prefix(ROOT)?;
        if below.is_empty() {
            return Some(RootPlace::Service.into());
        }
        // No address below the root begins with an empty segment.
        let below = below.strip_prefix('/').filter(|below| !below.is_empty() && !below.starts_with('/'))?;
        let segments = below.split('/').take(SEGMENTS_MAX + 1);
        let decoded: Vec<_> = segments.map(unescaped).collect::<Option<_>>()?;
        let segments: Vec<&str> = decoded.iter().map(|segment| &**segment).collect();
        if segments.len() > SEGMENTS_MAX { None } else { Self::from_segments(&segments) }
    }

    /// The address that segments below the root name.
    fn from_segments(segments: &[&str]) -> Option<Self> {
        AREAS.iter().copied().flatten().find_map(|route| route.parse(segments))
    }

    /// The resource whose tag a change is conditional on: that of an action, or itself.
    pub(crate) fn conditional(&self) -> Self {
        if self.methods().contains(&Method::GET) {
            return self.clone();
        }
        let (route, parameters) = self.route();
        let resource = route.pattern.split_once("/Actions/").or_else(|| route.pattern.rsplit_once('/'));
        let (resource, _) = resource.expect("an action is below a resource: a test goes over the table");
        let segments: Vec<&str> = route.segments(parameters).take(resource.split('/').count()).collect();
        Self::from_segments(&segments).expect("an action is below a resource: a test goes over the table")
    }

    /// Whether it is the root, which everybody may read.
    #[must_use]
    pub const fn is_public(&self) -> bool {
        matches!(self, Self::Root(_))
    }
}

/// The characters of identifiers that some clients escape (RFC 3986, 6.2.2.2). Everything else has
/// one form only.
const ESCAPED: &str = "~!+=,";

/// A segment without its escapes; `None` if it has some that no client needs.
fn unescaped(segment: &str) -> Option<Cow<'_, str>> {
    let Some((first, escaped)) = segment.split_once('%') else { return Some(Cow::Borrowed(segment)) };
    let mut decoded = first.to_owned();
    for part in escaped.split('%') {
        let (digits, rest) = part.split_at_checked(2)?;
        let byte = u8::from_str_radix(digits, 16).ok().map(char::from).filter(|c| ESCAPED.contains(*c))?;
        decoded.push(byte);
        decoded.push_str(rest);
    }
    Some(Cow::Owned(decoded))
}

/// As a URI without a host.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::Root(RootPlace::Versions) {
            return f.write_str("/redfish");
        }
        // The pattern of the service root is empty: it is the only one whose URI ends with a slash
        // (DSP0266, "Service root").
        f.write_str(ROOT)?;
        let (route, parameters) = self.route();
        route.segments(parameters).try_for_each(|segment| write!(f, "/{segment}"))
    }
}

#[cfg(test)]
mod tests;
