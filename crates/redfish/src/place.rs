//! Addresses of resources.

use std::fmt;

use crate::accounts::AccountPlace;
use crate::area::Area;
use crate::certificates::CertificatePlace;
use crate::chassis::ChassisPlace;
use crate::events::EventPlace;
use crate::fabrics::FabricPlace;
use crate::manager::ManagerPlace;
use crate::plan::PlanPlace;
use crate::registries::RegistryPlace;
use crate::root::RootPlace;
use crate::schemas::SchemaPlace;
use crate::sessions::SessionPlace;
use crate::storage::StoragePlace;
use crate::tasks::TaskPlace;
use crate::telemetry::TelemetryPlace;
use crate::update::UpdatePlace;

/// Where every resource is.
const ROOT: &str = "/redfish/v1";

/// The longest path, bytes, and the most segments below the root.
const PATH_BYTES_MAX: usize = 1024;
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
                match self {
                    $(Self::$area(place) => place.segments(),)*
                }
            }

            /// The addresses of all areas, as patterns, with the type of what is there.
            pub(crate) fn patterns() -> Vec<(&'static str, &'static str)> {
                [$(<$place>::patterns()),*].concat()
            }

            /// The area that it is in.
            pub(crate) fn area(&self) -> &dyn Area {
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
    Fabrics(FabricPlace),
    Plan(PlanPlace),
}

impl Place {
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
        let segments: Vec<&str> = below.strip_prefix('/')?.split('/').take(SEGMENTS_MAX + 1).collect();
        if segments.len() > SEGMENTS_MAX { None } else { Self::of(&segments) }
    }
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
