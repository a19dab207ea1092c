//! A room's id in the agent's lines: text, since readers that keep numbers as doubles round it.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Text, or a number as lines of old had it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Number(u64),
    Text(String),
}

impl Id {
    fn number<E: serde::de::Error>(self) -> Result<u64, E> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Text(text) => text.parse().map_err(|_error| {
                E::custom(format_args!("`{text}` is no room: give a whole number"))
            }),
        }
    }
}

/// Reads the id of a room, where there is one.
pub(crate) fn maybe<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    Option::<Id>::deserialize(from)?.map(Id::number).transpose()
}

/// Reads a list of ids.
pub(crate) fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    Vec::<Id>::deserialize(from).map_err(D::Error::custom)?.into_iter().map(Id::number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Line {
        #[serde(default, deserialize_with = "maybe")]
        room: Option<u64>,
        #[serde(default, deserialize_with = "list")]
        behind: Vec<u64>,
    }

    #[test]
    fn both_forms_are_read_and_nothing_is_rounded() {
        let read = |text: &str| serde_json::from_str::<Line>(text);
        let line = read(r#"{"room":"18446744073709551615","behind":["1",9007199254740993]}"#);
        let behind = vec![1, (1 << 53) + 1];
        assert_eq!(line.unwrap(), Line { room: Some(u64::MAX), behind });
        assert_eq!(read("{}").unwrap(), Line { room: None, behind: Vec::new() });
        assert!(read(r#"{"room":"x"}"#).unwrap_err().to_string().contains("`x` is no room"));
    }
}
