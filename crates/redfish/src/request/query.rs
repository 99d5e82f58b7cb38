//! Query parameters (DSP0266, "Query parameters"): `$select`, `$expand`, `$filter`, `$top`, `$skip`
//! and `only`.
//!
//! Owns their parsing and limits, and what they make of a resource's JSON. Expanding reads other
//! resources through a closure; how much may be expanded is bounded here.

mod filter;

use std::cell::Cell;

use http::StatusCode;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::place::Place;
use crate::response::message::{Message, Problem};
pub(crate) use filter::Filter;

/// The deepest expansion.
pub(crate) const LEVELS_MAX: u64 = 6;

/// The most resources in one answer.
const EXPANDED_MAX: usize = 4000;

/// The longest query, bytes.
const QUERY_BYTES_MAX: usize = 4096;

/// The query parameters of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    select: Option<Vec<Vec<String>>>,
    expand: Option<Expand>,
    filter: Option<Filter>,
    top: Option<usize>,
    skip: Option<usize>,
    only: bool,
    /// The other parameters as they were sent: a link to the next page has them, too.
    others: String,
}

#[derive(Clone, Copy, Debug)]
struct Expand {
    which: Which,
    levels: u64,
}

/// Which references are replaced by what they refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    /// `*`: all.
    All,
    /// `.`: those that are not in a `Links` property.
    Subordinate,
    /// `~`: those in a `Links` property.
    Dependent,
}

impl Query {
    /// Reads the query of a URI. Parameters that are not known and do not begin with `$` are
    /// ignored, as the standard wants.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Problem> {
        let mut query = Self::default();
        let text = text.unwrap_or_default();
        if text.len() > QUERY_BYTES_MAX {
            let accepted = format!("a query of at most {QUERY_BYTES_MAX} bytes");
            return Err(Problem::new(StatusCode::URI_TOO_LONG, Message::query_range("$select", "...", &accepted)));
        }
        for part in text.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let value = decoded(value);
            let (name, value) = (decoded(name), value.as_str());
            if matches!(name.as_str(), "$select" | "$expand" | "$filter") {
                query.others = format!("{}&{part}", query.others);
            }
            match name.as_str() {
                "$select" => query.select = Some(selected(value)?),
                "$expand" => query.expand = Some(Expand::parse(value)?),
                "$filter" => query.filter = Some(Filter::parse(value)?),
                "$top" => query.top = Some(number("$top", value)?),
                "$skip" => query.skip = Some(number("$skip", value)?),
                "only" if value.is_empty() => query.only = true,
                "only" => return Err(Problem::bad_request(Message::query_value("only", value, "no value"))),
                other if other.starts_with('$') => {
                    return Err(Problem::new(StatusCode::NOT_IMPLEMENTED, Message::query_not_supported(other)));
                }
                // "Services shall ignore unknown or unsupported query parameters that do not begin
                // with $."
                _ => {}
            }
        }
        let others = query.expand.is_some() || query.select.is_some() || query.filter.is_some() || query.pages();
        if query.only && others {
            return Err(Problem::bad_request(Message::query_combination("`only` stands alone")));
        }
        Ok(query)
    }

    /// The filter alone.
    pub(crate) fn into_filter(self) -> Option<Filter> {
        self.filter
    }

    /// Whether the resource is answered as it is.
    pub(crate) const fn is_plain(&self) -> bool {
        self.select.is_none() && self.expand.is_none() && self.filter.is_none() && !self.pages() && !self.only
    }

    const fn pages(&self) -> bool {
        self.top.is_some() || self.skip.is_some()
    }

    /// What is answered of a resource. `read` reads another one; it is `None` where that is gone.
    pub(crate) fn apply(
        &self,
        place: &Place,
        resource: Value,
        read: &dyn Fn(&Place) -> Option<Value>,
    ) -> Result<Value, Problem> {
        let is_collection = resource.get("Members").is_some_and(Value::is_array);
        let mut resource = resource;
        if is_collection {
            if self.only
                && let Some([one]) = resource["Members"].as_array().map(Vec::as_slice)
                && let Some(member) = place_of(one).and_then(|place| read(&place))
            {
                return Ok(member);
            }
            self.filter_members(&mut resource, read);
            self.page(place, &mut resource);
        } else if self.pages() || self.filter.is_some() || self.only {
            let name = if self.only {
                "only"
            } else if self.filter.is_some() {
                "$filter"
            } else {
                "$top"
            };
            return Err(Problem::bad_request(Message::query_not_supported(name)));
        }
        if let Some(expand) = self.expand {
            let left = Cell::new(EXPANDED_MAX);
            expand.object(&mut resource, expand.levels, false, &left, read);
            if left.get() == 0 {
                let accepted = format!("fewer levels: at most {EXPANDED_MAX} resources are expanded");
                let message = Message::query_range("$expand", &format!("$levels={}", expand.levels), &accepted);
                return Err(Problem::bad_request(message));
            }
        }
        if let Some(select) = &self.select {
            let selects_members = is_collection && self.expand.is_some();
            resource = if selects_members { select_members(resource, select) } else { select_of(&resource, select) };
        }
        Ok(resource)
    }

    /// Keeps the members for which the filter holds, and counts them.
    fn filter_members(&self, resource: &mut Value, read: &dyn Fn(&Place) -> Option<Value>) {
        let Some(filter) = &self.filter else { return };
        let members = resource["Members"].as_array_mut().expect("it is a collection");
        members.retain(|member| match place_of(member) {
            Some(place) => read(&place).is_some_and(|resource| filter.holds(&resource)),
            // An embedded member, such as a log entry.
            None => filter.holds(member),
        });
        resource["Members@odata.count"] = members.len().into();
    }

    fn page(&self, place: &Place, resource: &mut Value) {
        if !self.pages() {
            return;
        }
        let members = resource["Members"].as_array_mut().expect("it is a collection");
        let skip = self.skip.unwrap_or(0).min(members.len());
        members.drain(..skip);
        let Some(top) = self.top.filter(|&top| top < members.len()) else { return };
        members.truncate(top);
        if top > 0 {
            let next = format!("{place}?$skip={}&$top={top}{}", skip + top, self.others);
            resource["Members@odata.nextLink"] = next.into();
        }
    }
}

fn place_of(link: &Value) -> Option<Place> {
    let link = link.as_object().filter(|link| link.len() == 1)?;
    Place::parse(link.get("@odata.id")?.as_str()?)
}

impl Expand {
    fn parse(text: &str) -> Result<Self, Problem> {
        const ACCEPTED: &str = "*, . or ~, with ($levels=1) to ($levels=6) behind it";
        let wrong = || Problem::bad_request(Message::query_value("$expand", text, ACCEPTED));
        let mut characters = text.chars();
        let which = match characters.next() {
            Some('*') => Which::All,
            Some('.') => Which::Subordinate,
            Some('~') => Which::Dependent,
            _ => return Err(wrong()),
        };
        let levels = match characters.as_str() {
            "" => 1,
            rest => {
                let digits =
                    rest.strip_prefix("($levels=").and_then(|rest| rest.strip_suffix(')')).ok_or_else(wrong)?;
                digits.parse().map_err(|_| wrong())?
            }
        };
        if !(1..=LEVELS_MAX).contains(&levels) {
            let accepted = format!("1 to {LEVELS_MAX} levels");
            return Err(Problem::bad_request(Message::query_range("$expand", text, &accepted)));
        }
        Ok(Self { which, levels })
    }

    /// Expands what a resource, or a part of it, refers to.
    fn object(
        self,
        value: &mut Value,
        levels: u64,
        in_links: bool,
        left: &Cell<usize>,
        read: &dyn Fn(&Place) -> Option<Value>,
    ) {
        match value {
            Value::Array(list) => {
                list.iter_mut().for_each(|one| self.reference(one, levels, in_links, left, read));
            }
            Value::Object(object) => {
                for (name, inner) in object.iter_mut().filter(|(name, _)| !name.starts_with('@')) {
                    self.reference(inner, levels, in_links || name == "Links", left, read);
                }
            }
            _ => {}
        }
    }

    fn reference(
        self,
        value: &mut Value,
        levels: u64,
        in_links: bool,
        left: &Cell<usize>,
        read: &dyn Fn(&Place) -> Option<Value>,
    ) {
        let Some(place) = place_of(value) else { return self.object(value, levels, in_links, left, read) };
        let wanted = match self.which {
            Which::All => true,
            Which::Subordinate => !in_links,
            Which::Dependent => in_links,
        };
        if !wanted || left.get() == 0 {
            return;
        }
        if let Some(mut resource) = read(&place) {
            left.set(left.get() - 1);
            if levels > 1 {
                self.object(&mut resource, levels - 1, false, left, read);
            }
            *value = resource;
        }
    }
}

/// `Status/State,Id`: paths of properties.
fn selected(text: &str) -> Result<Vec<Vec<String>>, Problem> {
    let is_path = |path: &str| !path.is_empty() && path.split('/').all(|name| !name.is_empty());
    let paths = text.split(',').map(str::trim);
    if text.is_empty() || !paths.clone().all(is_path) {
        let accepted = "names of properties, with commas between: Id,Status/State";
        return Err(Problem::bad_request(Message::query_value("$select", text, accepted)));
    }
    Ok(paths.map(|path| path.split('/').map(str::to_owned).collect()).collect())
}

/// What is selected of a resource: always with what identifies it.
fn select_of(resource: &Value, select: &[Vec<String>]) -> Value {
    let Value::Object(object) = resource else { return resource.clone() };
    let mut kept = Map::new();
    for (name, value) in object {
        let inner: Vec<&[String]> = select.iter().filter(|path| path[0] == *name).map(|path| &path[1..]).collect();
        let always = matches!(name.as_str(), "@odata.id" | "@odata.type" | "@odata.etag" | "@odata.context");
        if always || inner.iter().any(|path| path.is_empty()) {
            kept.insert(name.clone(), value.clone());
        } else if !inner.is_empty() {
            let inner: Vec<Vec<String>> = inner.into_iter().map(<[String]>::to_vec).collect();
            kept.insert(name.clone(), select_of(value, &inner));
        } else if let Some((of, _)) = name.split_once('@').filter(|(of, _)| !of.is_empty())
            && select.iter().any(|path| path.len() == 1 && path[0] == of)
        {
            // `Members@odata.count` goes with `Members`.
            kept.insert(name.clone(), value.clone());
        }
    }
    Value::Object(kept)
}

/// Of an expanded collection, the members' properties are selected.
fn select_members(mut collection: Value, select: &[Vec<String>]) -> Value {
    if let Some(members) = collection["Members"].as_array_mut() {
        members.iter_mut().for_each(|member| *member = select_of(member, select));
    }
    collection
}

fn number(name: &str, text: &str) -> Result<usize, Problem> {
    text.parse().map_err(|_| Problem::bad_request(Message::query_value(name, text, "integers from 0")))
}

/// A part of a query with `%20` and `+` decoded; what is no text is replaced.
fn decoded(text: &str) -> String {
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests;
