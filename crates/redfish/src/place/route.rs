//! What a row of the table of routes is: one address, or all that differ by their parameters.

use ebof_access::Privilege;
use http::Method;

use super::Place;

/// A row of the table.
#[derive(Debug)]
pub(super) struct Route {
    /// Below the root, with a name in braces for each parameter. One that begins with a slash is
    /// not below the root.
    pub(super) pattern: &'static str,
    /// The type of the resource; empty for documents and actions.
    pub(super) kind: &'static str,
    /// The methods, without HEAD and OPTIONS.
    pub(super) methods: &'static [Method],
    /// The privileges that they need.
    pub(super) privileges: Privileges,
    /// The values of each parameter; empty for one that has any.
    pub(super) values: &'static [&'static [&'static str]],
    /// The address with these parameters; `None` if one has no such value.
    pub(super) make: fn(&[&str]) -> Option<Place>,
}

impl Route {
    /// The address that segments below the root name, if it is one of this row.
    pub(super) fn parse(&self, segments: &[&str]) -> Option<Place> {
        let mut parameters = Vec::new();
        let mut pattern = self.pattern.split('/');
        for segment in segments {
            let wanted = pattern.next()?;
            if is_parameter(wanted) {
                parameters.push(*segment);
            } else if wanted != *segment {
                return None;
            }
        }
        if pattern.next().is_some() { None } else { (self.make)(&parameters) }
    }

    /// The segments with these parameters.
    pub(super) fn segments<'s>(&'static self, parameters: Vec<&'s str>) -> impl Iterator<Item = &'s str> {
        let mut parameters = parameters.into_iter();
        self.pattern.split('/').map(move |segment| {
            if !is_parameter(segment) {
                return segment;
            }
            parameters.next().expect("a row has a parameter for each name: a test goes over the table")
        })
    }

    /// The pattern with this value for its first name, and an address of it whose other parameters
    /// are `x`.
    pub(super) fn example(&self, first: Option<&str>) -> (String, Place) {
        let names = self.pattern.split('/').filter(|segment| is_parameter(segment)).count();
        let mut parameters = vec!["x"; names];
        let mut pattern = self.pattern.to_owned();
        if let Some(value) = first {
            parameters[0] = value;
            let (before, rest) = pattern.split_once('{').expect("what has values has a name");
            let (_, after) = rest.split_once('}').expect("names are in braces");
            pattern = format!("{before}{value}{after}");
        }
        let place = (self.make)(&parameters).expect("a row takes its own values, and any text without them");
        (pattern, place)
    }

    /// The values of the first parameter, if it has only these.
    pub(super) fn first_values(&self) -> &'static [&'static str] {
        self.values.first().copied().unwrap_or(&[])
    }
}

/// Whether a segment of a pattern is the name of a parameter.
fn is_parameter(segment: &str) -> bool {
    segment.starts_with('{')
}

/// The privilege that each method needs; `None` needs no account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Privileges {
    pub(super) get: Option<Privilege>,
    /// For the methods of the row that change something.
    pub(super) change: Option<Privilege>,
    /// For methods that the row does not have: without it their answer is 403, and with it 405.
    pub(super) other: Option<Privilege>,
}

impl Privileges {
    /// Everybody who can log in reads; whatever else is asked for needs this.
    const fn to_change(privilege: Privilege) -> Self {
        Self { get: Some(Privilege::Login), change: Some(privilege), other: Some(privilege) }
    }

    /// The same for all methods.
    const fn all(privilege: Option<Privilege>) -> Self {
        Self { get: privilege, change: privilege, other: privilege }
    }
}

/// What is managed.
pub(super) const COMPONENTS: Privileges = Privileges::to_change(Privilege::ConfigureComponents);

/// Settings of the manager.
pub(super) const MANAGER: Privileges = Privileges::to_change(Privilege::ConfigureManager);

/// Who there is.
pub(super) const USERS: Privileges = Privileges::to_change(Privilege::ConfigureUsers);

/// The keys of hosts, which only they see who may change them.
pub(super) const KEYS: Privileges = Privileges::all(Some(Privilege::ConfigureManager));

/// One of them: [`Place::permits`] lets everybody read and change their own.
pub(super) const USER: Privileges = Privileges::all(Some(Privilege::ConfigureUsers));

/// For everybody who can log in.
pub(super) const LOGIN: Privileges = Privileges::all(Some(Privilege::Login));

/// For everybody.
pub(super) const PUBLIC: Privileges = Privileges::all(None);

/// The service of sessions.
pub(super) const SESSIONS: Privileges = Privileges { change: Some(Privilege::ConfigureManager), ..LOGIN };

/// Logging in.
pub(super) const LOG_IN: Privileges = Privileges { change: None, ..LOGIN };

/// Ending a session. Whose it is, is looked at where it is ended.
pub(super) const LOG_OUT: Privileges = Privileges { change: Some(Privilege::ConfigureSelf), ..LOGIN };

/// Only to be read.
pub(super) const READ: &[Method] = &[Method::GET];

/// To be read and changed.
pub(super) const PATCH: &[Method] = &[Method::GET, Method::PATCH];

/// To be read, changed and deleted.
pub(super) const PATCH_DELETE: &[Method] = &[Method::GET, Method::PATCH, Method::DELETE];

/// To be read and deleted.
pub(super) const DELETE: &[Method] = &[Method::GET, Method::DELETE];

/// A collection that gets new members.
pub(super) const GET_POST: &[Method] = &[Method::GET, Method::POST];

/// An action.
pub(super) const ACTION: &[Method] = &[Method::POST];

/// Addresses that are in the table.
pub(super) trait Routed {
    /// The row of an address, and its parameters.
    fn route(&self) -> (&'static Route, Vec<&str>);
}

/// The addresses of one area.
pub(super) trait AreaRoutes: Routed {
    /// Their rows.
    const ROUTES: &'static [Route];
}

/// A value in an address.
pub(super) trait Parameter: Sized {
    /// The values that documents list, if not any is one.
    const VALUES: &'static [&'static str] = &[];

    fn parse(segment: &str) -> Option<Self>;

    fn segment(&self) -> &str;
}

impl Parameter for String {
    fn parse(segment: &str) -> Option<Self> {
        Some(segment.to_owned())
    }

    fn segment(&self) -> &str {
        self
    }
}

/// Declares the areas with the addresses of each: [`Place`], the enums in it, and their rows.
macro_rules! routes {
    ($(
        $(#[doc = $area_doc:literal])*
        $area:ident($place:ident) {$(
            $(#[doc = $doc:literal])*
            $name:ident $(($($parameter:ident: $type:ty),+))?
                => $pattern:literal, $kind:literal, $methods:ident, $privileges:ident;
        )+}
    )+) => {
        /// The address of a resource, or of an action.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Place {
            $(#[doc = concat!("In the area `", stringify!($area), "`.")] $area($place),)+
        }

        /// The rows of each area.
        pub(super) const AREAS: &[&[Route]] = &[$(<$place>::ROUTES),+];

        impl Routed for Place {
            fn route(&self) -> (&'static Route, Vec<&str>) {
                match self {
                    $(Self::$area(place) => place.route(),)+
                }
            }
        }

        $(
            $(#[doc = $area_doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
            #[non_exhaustive]
            pub enum $place {
                $($(#[doc = $doc])* $name $(($($type),+))?,)+
            }

            impl From<$place> for Place {
                fn from(place: $place) -> Self {
                    Self::$area(place)
                }
            }

            impl AreaRoutes for $place {
                const ROUTES: &'static [Route] = &[$(Route {
                    pattern: $pattern,
                    kind: $kind,
                    methods: $methods,
                    privileges: $privileges,
                    values: &[$($(<$type as Parameter>::VALUES),+)?],
                    make: |parameters| {
                        let [$($($parameter),+)?] = parameters else { return None };
                        Some(Place::$area($place::$name $(($(<$type as Parameter>::parse($parameter)?),+))?))
                    },
                }),+];
            }

            impl Routed for $place {
                fn route(&self) -> (&'static Route, Vec<&str>) {
                    enum Row {
                        $($name,)+
                    }
                    let (row, parameters) = match self {
                        $(Self::$name $(($($parameter),+))? => (Row::$name, vec![$($($parameter.segment()),+)?]),)+
                    };
                    (&Self::ROUTES[row as usize], parameters)
                }
            }
        )+
    };
}
pub(super) use routes;
