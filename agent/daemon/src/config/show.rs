//! The configuration in force, with the origin of each value.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

use super::Config;
use super::file::File;
use super::problem::Origin;
use super::schema::join;

/// One value in force.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    /// The key with its full path.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Where it comes from.
    pub origin: Origin,
}

/// Everything in force. `file` has its deadlines filled in.
pub(super) fn settings(file: &File, origins: &BTreeMap<String, Origin>) -> Vec<Setting> {
    let mut found = Vec::new();
    if let Ok(value) = serde_json::to_value(file) {
        flatten("", &value, origins, &mut found);
    }
    // Keys of the top first: they would belong to a table if they came after it.
    found.sort_by_key(|setting| setting.key.contains('.'));
    found
}

fn flatten(under: &str, value: &Value, origins: &BTreeMap<String, Origin>, to: &mut Vec<Setting>) {
    if let Some(table) = value.as_object() {
        for (key, inner) in table {
            flatten(&join(under, key), inner, origins, to);
        }
        return;
    }
    let origin = origins.get(under).cloned().unwrap_or(Origin::Default);
    to.push(Setting { key: under.to_owned(), value: value.clone(), origin });
}

impl Config {
    /// The configuration in force as TOML, each line with the origin of its value.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        let mut table = "";
        for setting in &self.settings {
            let (under, key) = setting.key.rsplit_once('.').unwrap_or(("", &setting.key));
            if under != table {
                table = under;
                let _infallible = writeln!(text, "\n[{under}]");
            }
            let line = format!("{key} = {}", plain(&setting.value));
            let _infallible = writeln!(text, "{line:<44} # {}", setting.origin);
        }
        text
    }
}

/// A value as TOML; JSON's form fits all that occur, but for the point of whole numbers.
fn plain(value: &Value) -> String {
    match value.as_f64() {
        Some(number) if number.fract() == 0.0 => format!("{number:.0}"),
        _ => value.to_string(),
    }
}
