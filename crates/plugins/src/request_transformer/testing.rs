//! A request for the tests of the rules.

use super::headers::Lines;
use super::lua::Item;
use super::template::{Environment, Key};
use smallvec::SmallVec;
use std::borrow::Cow;

#[derive(Default)]
pub(super) struct Request {
    headers: Vec<(String, String)>,
}

impl Request {
    pub(super) fn with_headers(headers: &[(&str, &str)]) -> Self {
        let headers = headers.iter();
        Self {
            headers: headers
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        }
    }
}

impl Lines for Request {
    fn values(&self, name: &str) -> SmallVec<[&[u8]; 2]> {
        let same = self
            .headers
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_bytes()).collect()
    }

    fn spelling(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        headers
            .find(|(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(spelled, _)| spelled.as_str())
    }
}

impl Environment for Request {
    fn header(&self, name: &str) -> Item<'_> {
        let values = self.values(&name.replace('_', "-"));
        Item::of_values(
            values
                .into_iter()
                .map(|value| Item::Text(Cow::Borrowed(value))),
        )
    }

    fn query_param(&self, _name: &str) -> Item<'_> {
        Item::Nil
    }

    fn capture(&self, _key: &Key) -> Item<'_> {
        Item::Nil
    }

    fn shared(&self, _name: &str) -> Item<'_> {
        Item::Nil
    }
}
