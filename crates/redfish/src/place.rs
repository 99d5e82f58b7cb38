//! Addresses of resources: what there can be, which methods it has, and for whom; the identifiers
//! in addresses, and the types of resources. What is shown and done there is in the areas
//! ([`Area`](crate::area::Area)); none of them is known here, so that each can refer to all others.

mod accounts;
mod certificates;
mod chassis;
mod events;
mod fabrics;
pub(crate) mod id;
pub(crate) mod kinds;
mod manager;
mod plan;
mod registries;
mod root;
mod schemas;
mod sessions;
mod storage;
mod systems;
mod tasks;
mod telemetry;
mod update;

use std::borrow::Cow;
use std::fmt;

use ebof_access::{Privilege, User};
use http::Method;

pub(crate) use accounts::AccountPlace;
pub(crate) use certificates::CertificatePlace;
pub(crate) use chassis::ChassisPlace;
pub(crate) use events::EventPlace;
pub(crate) use fabrics::{FabricKind, FabricPlace, HOST_PREFIX, is_function};
pub(crate) use manager::{Log, ManagerPlace};
pub(crate) use plan::PlanPlace;
pub(crate) use registries::{Registry, RegistryPlace};
pub(crate) use root::RootPlace;
pub(crate) use schemas::SchemaPlace;
pub(crate) use sessions::SessionPlace;
pub(crate) use storage::{PLAIN, PRIMARY, StoragePlace};
pub(crate) use systems::SystemPlace;
pub(crate) use tasks::TaskPlace;
pub(crate) use telemetry::{ReportKind, TelemetryPlace};
pub(crate) use update::UpdatePlace;

/// Where every resource is.
const ROOT: &str = "/redfish/v1";

/// The longest path, bytes, and the most segments below the root.
const PATH_BYTES_MAX: usize = 4096;
const SEGMENTS_MAX: usize = 12;

/// Declares the areas: a variant of [`Place`] for each.
macro_rules! areas {
    ($($area:ident($place:ty)),* $(,)?) => {
        /// The address of a resource, or of an action.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Place {
            $(#[doc = concat!("In the area `", stringify!($area), "`.")] $area($place),)*
        }

        $(impl From<$place> for Place {
            fn from(place: $place) -> Self {
                Self::$area(place)
            }
        })*

        impl Place {
            /// The address that segments below the root name.
            fn of(segments: &[&str]) -> Option<Self> {
                $(if let Some(place) = <$place>::parse(segments) {
                    return Some(Self::$area(place));
                })*
                None
            }

            fn segments(&self) -> Vec<&str> {
                self.address().segments()
            }

            /// The addresses of all areas, as patterns, with the type of what is there.
            pub(crate) fn patterns() -> Vec<(&'static str, &'static str)> {
                [$(<$place>::patterns()),*].concat()
            }

            fn address(&self) -> &dyn Address {
                match self {
                    $(Self::$area(place) => place,)*
                }
            }
        }
    };
}

areas! {
    Root(RootPlace),
    Chassis(ChassisPlace),
    Session(SessionPlace),
    Account(AccountPlace),
    Task(TaskPlace),
    Manager(ManagerPlace),
    Event(EventPlace),
    Telemetry(TelemetryPlace),
    Certificate(CertificatePlace),
    Update(UpdatePlace),
    Registry(RegistryPlace),
    Schema(SchemaPlace),
    Storage(StoragePlace),
    System(SystemPlace),
    Fabrics(FabricPlace),
    Plan(PlanPlace),
}

/// Addresses of one area.
trait Address {
    /// The address that segments below the root name. Whether there is such a resource now is said
    /// by who reads it.
    fn parse(segments: &[&str]) -> Option<Self>
    where
        Self: Sized;

    /// The segments below the root.
    fn segments(&self) -> Vec<&str>;

    /// The addresses, with `{Id}` for what is not fixed, each with the type of its resource;
    /// without one it is a document or an action.
    fn patterns() -> &'static [(&'static str, &'static str)]
    where
        Self: Sized;

    /// The methods, without HEAD and OPTIONS.
    fn methods(&self) -> &'static [Method] {
        READ
    }

    /// The privilege that a method needs; `None` needs no account.
    fn privilege(&self, method: &Method) -> Option<Privilege> {
        Some(if *method == Method::GET { Privilege::Login } else { Privilege::ConfigureComponents })
    }

    /// Whether a user may use a method, as far as the address tells.
    fn permits(&self, method: &Method, user: &User) -> bool {
        self.privilege(method).is_none_or(|privilege| user.may(privilege))
    }
}

/// Only to be read.
const READ: &[Method] = &[Method::GET];

/// To be read and changed.
const PATCH: &[Method] = &[Method::GET, Method::PATCH];

/// To be read, changed and deleted.
const PATCH_DELETE: &[Method] = &[Method::GET, Method::PATCH, Method::DELETE];

/// To be read and deleted.
const DELETE: &[Method] = &[Method::GET, Method::DELETE];

/// A collection that gets new members.
const GET_POST: &[Method] = &[Method::GET, Method::POST];

/// An action.
const ACTION: &[Method] = &[Method::POST];

impl Place {
    /// Its methods, without HEAD and OPTIONS.
    pub(crate) fn methods(&self) -> &'static [Method] {
        self.address().methods()
    }

    /// The privilege that a method needs; `None` needs no account.
    pub(crate) fn privilege(&self, method: &Method) -> Option<Privilege> {
        self.address().privilege(method)
    }

    /// Whether a user may use a method, as far as the address tells.
    pub(crate) fn permits(&self, method: &Method, user: &User) -> bool {
        self.address().permits(method, user)
    }

    /// The last segment, which is the identifier of the resource; empty for the roots.
    pub(crate) fn id(&self) -> &str {
        self.segments().last().copied().unwrap_or_default()
    }

    /// An address that a pattern has: identifiers are `x`.
    pub(crate) fn of_pattern(pattern: &str) -> Option<Self> {
        let one = |segment: &str| if segment.starts_with('{') { "x".to_owned() } else { segment.to_owned() };
        let path: Vec<String> = pattern.split('/').map(one).collect();
        Self::parse(&format!("{ROOT}/{}", path.join("/")))
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
        let segments = below.strip_prefix('/')?.split('/').take(SEGMENTS_MAX + 1);
        let decoded: Vec<_> = segments.map(unescaped).collect::<Option<_>>()?;
        let segments: Vec<&str> = decoded.iter().map(|segment| &**segment).collect();
        if segments.len() > SEGMENTS_MAX { None } else { Self::of(&segments) }
    }

    /// The resource whose tag a change is conditional on: that of an action, or itself.
    pub(crate) fn conditional(&self) -> Self {
        let path = self.to_string();
        let resource = match path.split_once("/Actions/") {
            None if self.methods().contains(&Method::GET) => return self.clone(),
            None => path.rsplit_once('/'),
            action => action,
        };
        resource.and_then(|(resource, _)| Self::parse(resource)).unwrap_or_else(|| self.clone())
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
    if !segment.contains('%') {
        return Some(Cow::Borrowed(segment));
    }
    let mut parts = segment.split('%');
    let mut decoded = parts.next().unwrap_or_default().to_owned();
    for part in parts {
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
        match self {
            Self::Root(RootPlace::Versions) => f.write_str("/redfish"),
            // The service root is the only one whose URI ends with a slash (DSP0266, "Service
            // root").
            Self::Root(RootPlace::Service) => write!(f, "{ROOT}/"),
            _ => {
                f.write_str(ROOT)?;
                self.segments().iter().try_for_each(|segment| write!(f, "/{segment}"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
