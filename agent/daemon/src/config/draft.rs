//! Values from file, environment and flags, each checked against the schema as it comes in.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::problem::{Origin, Problem, TOLD_MAX};
use super::schema::{self, Form, join};

/// What has been given so far.
pub(super) struct Draft {
    schema: Value,
    /// The good values.
    pub(super) given: toml::Table,
    /// Where each comes from, by its path.
    pub(super) origins: BTreeMap<String, Origin>,
    /// Keys whose value is bad: what depends on them is not checked.
    pub(super) bad: BTreeSet<String>,
    /// What is wrong.
    pub(super) problems: Vec<Problem>,
    /// How many more problems of form and of unknown keys there are: only those have no bound.
    pub(super) more: usize,
}

/// Text with a way from byte offsets to lines.
struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn origin(&self, span: &Range<usize>) -> Origin {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        Origin::File { path: self.path.to_owned(), line, column }
    }

    fn shown(&self, span: &Range<usize>) -> String {
        let text = self.text.get(span.clone()).unwrap_or_default();
        let line = text.lines().next().unwrap_or_default();
        let shown = short(line);
        if line.len() < text.len() && shown.len() == line.len() {
            return format!("{line}…");
        }
        shown.into_owned()
    }
}

/// Most characters of a key or a value that are told.
const SHOWN_MAX: usize = 60;

/// The beginning of a text.
pub(super) fn short(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()).into(),
        None => text.into(),
    }
}

impl Draft {
    pub(super) fn new() -> Self {
        Self {
            schema: schema::schema(),
            given: toml::Table::new(),
            origins: BTreeMap::new(),
            bad: BTreeSet::new(),
            problems: Vec::new(),
            more: 0,
        }
    }

    /// Takes a file's text.
    pub(super) fn take_file(&mut self, path: &Path, text: &str) {
        let source = Source { path, text };
        let (table, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            if self.is_full() {
                continue;
            }
            let span = error.span().unwrap_or(0..0);
            let text = broken(error.message(), &source.shown(&span));
            self.report(source.origin(&span), "", None, text);
        }
        let broken = self.more;
        let schema = std::mem::take(&mut self.schema);
        let mut given = std::mem::take(&mut self.given);
        if let Form::Table(keys) = Form::of(&schema) {
            self.walk(&source, &schema, keys, ("", table.get_ref()), &mut given);
        }
        (self.schema, self.given) = (schema, given);
        if !errors.is_empty() {
            self.more = broken;
        }
        // A broken line is followed by nonsense: of each line only the first word counts.
        let mut lines = BTreeSet::new();
        self.problems.retain(|problem| match &problem.origin {
            Origin::File { line, .. } if !errors.is_empty() => lines.insert(*line),
            _ => true,
        });
    }

    fn walk(
        &mut self,
        source: &Source<'_>,
        root: &Value,
        known: &serde_json::Map<String, Value>,
        (under, table): (&str, &DeTable<'_>),
        to: &mut toml::Table,
    ) {
        for (key, value) in table {
            let Some(schema) = known.get(key.get_ref().as_ref()) else {
                if self.is_full() {
                    continue;
                }
                let path = join(under, &short(key.get_ref()));
                let text = unknown(root, under, key.get_ref());
                self.report(source.origin(&key.span()), &path, None, text);
                continue;
            };
            let path = join(under, key.get_ref());
            let origin = source.origin(&value.span());
            match (Form::of(schema), value.get_ref()) {
                (Form::Table(keys), DeValue::Table(inner)) => {
                    let mut given = toml::Table::new();
                    self.walk(source, root, keys, (&path, inner), &mut given);
                    self.origins.insert(path, source.origin(&key.span()));
                    to.insert(key.get_ref().to_string(), toml::Value::Table(given));
                }
                (form, value_ref) => match checked(form, value_ref) {
                    Ok(good) => {
                        to.insert(key.get_ref().to_string(), good);
                        self.origins.insert(path, origin);
                    }
                    Err(text) => {
                        let shown = source.shown(&value.span());
                        self.report(origin, &path, Some(shown), text);
                    }
                },
            }
        }
    }

    /// Takes the value of one key from the environment or a flag; it goes before what was there.
    pub(super) fn take_text(&mut self, key: &'static str, text: &str, origin: Origin) {
        let form = schema::at(&self.schema, key).map_or(Form::Text, Form::of);
        let good = match (form, text.trim().parse::<f64>()) {
            (Form::Number { .. }, Ok(value)) => number(form, value, false),
            _ => checked(form, &DeValue::String(Cow::Borrowed(text))),
        };
        // What it replaces no longer matters, even where it was wrong.
        self.problems.retain(|problem| problem.key != key);
        self.bad.remove(key);
        match good {
            Ok(value) => {
                insert(&mut self.given, key, value);
                self.origins.insert(key.to_owned(), origin);
            }
            Err(wanted) => self.refuse(key, text, origin, wanted),
        }
    }

    /// Notes something wrong with the value of a key. One that nobody gave is told where its table
    /// stands.
    pub(super) fn wrong(&mut self, key: &str, value: Option<String>, text: String) {
        let table = || self.origins.get(key.rsplit_once('.')?.0);
        let origin = self.origins.get(key).or_else(table).cloned().unwrap_or(Origin::Default);
        self.report(origin, key, value, text);
    }

    /// Notes that a text cannot be the value of a key.
    pub(super) fn refuse(&mut self, key: &str, text: &str, origin: Origin, remedy: String) {
        self.report(origin, key, Some(format!("`{}`", short(text))), remedy);
    }

    /// The bounds of a key that takes a number.
    pub(super) fn bounds(&self, key: &str) -> (f64, f64) {
        match schema::at(&self.schema, key).map(Form::of) {
            Some(Form::Number { min, max, .. }) => (min, max),
            _ => (f64::NEG_INFINITY, f64::INFINITY),
        }
    }

    /// Whether enough problems are noted already. Counts the one that then is not.
    fn is_full(&mut self) -> bool {
        let full = self.problems.len() >= TOLD_MAX;
        self.more += usize::from(full);
        full
    }

    fn report(&mut self, origin: Origin, key: &str, value: Option<String>, text: String) {
        self.bad.insert(key.to_owned());
        self.problems.push(Problem { origin, key: key.to_owned(), value, text });
    }
}

/// What to say of a broken line, of which `shown` is the broken part.
fn broken(message: &str, shown: &str) -> String {
    if message == "duplicate key" && !shown.is_empty() {
        return format!("duplicate key `{shown}`: it stands there twice; leave one of them out");
    }
    message.replace('\n', ": ")
}

fn insert(table: &mut toml::Table, path: &str, value: toml::Value) {
    match path.split_once('.') {
        None => drop(table.insert(path.to_owned(), value)),
        Some((key, rest)) => {
            let empty = || toml::Value::Table(toml::Table::new());
            let inner = table.entry(key).or_insert_with(empty);
            if let toml::Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

fn checked(form: Form<'_>, value: &DeValue<'_>) -> Result<toml::Value, String> {
    let wanted = || form.wanted();
    match (form, value) {
        (Form::Bool, DeValue::Boolean(value)) => Ok(toml::Value::Boolean(*value)),
        (Form::Text, DeValue::String(text)) => Ok(toml::Value::String(text.to_string())),
        (Form::Word(words), DeValue::String(text)) => {
            let known = || words.iter().filter_map(schema::word);
            if known().any(|word| word == text) {
                return Ok(toml::Value::String(text.to_string()));
            }
            let near = nearest(text, known()).map(|word| format!("did you mean `{word}`? "));
            Err(near.unwrap_or_default() + &wanted())
        }
        (Form::Number { .. }, DeValue::Integer(value)) => {
            let parsed = i64::from_str_radix(value.as_str(), value.radix());
            let parsed = parsed.ok().and_then(|value| i32::try_from(value).ok());
            number(form, parsed.map_or(f64::INFINITY, f64::from), true)
        }
        (Form::Number { .. }, DeValue::Float(value)) => {
            number(form, value.as_str().parse().unwrap_or(f64::NAN), false)
        }
        _ => Err(wanted()),
    }
}

/// A number within its bounds. Whole numbers stay whole, where the key takes nothing else.
fn number(form: Form<'_>, value: f64, is_whole: bool) -> Result<toml::Value, String> {
    let Form::Number { whole, min, max, .. } = form else {
        return Err(form.wanted());
    };
    if !(min..=max).contains(&value) || (whole && !is_whole && value.fract() != 0.0) {
        return Err(form.wanted());
    }
    if whole {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "every bound of a whole key is small"
        )]
        return Ok(toml::Value::Integer(value as i64));
    }
    Ok(toml::Value::Float(value))
}

/// What to say of a key that does not exist.
fn unknown(root: &Value, under: &str, key: &str) -> String {
    let paths = schema::paths(root);
    let siblings = || {
        let table = if under.is_empty() { Some(root) } else { schema::at(root, under) };
        table.and_then(|table| table.get("properties")?.as_object()).into_iter().flatten()
    };
    let sibling =
        nearest(key, siblings().map(|(name, _)| name.as_str())).map(|name| join(under, name));
    // Perhaps it only stands in the wrong table.
    let elsewhere = || {
        let last = |path: &'_ str| path.rsplit('.').next().unwrap_or_default().to_owned();
        let exact = paths.iter().find(|path| last(path) == key);
        exact.or_else(|| {
            let name = paths.iter().map(|path| last(path)).collect::<Vec<_>>();
            let near = nearest(key, name.iter().map(String::as_str))?;
            paths.iter().find(|path| last(path) == near)
        })
    };
    if let Some(near) = sibling.or_else(|| elsewhere().cloned()) {
        return format!("there is no such key; did you mean `{near}`?");
    }
    let names: Vec<String> = siblings().map(|(name, _)| format!("`{name}`")).collect();
    format!("there is no such key; known here: {}", names.join(", "))
}

/// The word that was probably meant.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const NEAR: f64 = 0.8;
    // Nobody meant one of ours by it, and to compare it takes long.
    if word.len() > SHOWN_MAX {
        return None;
    }
    let word = word.to_lowercase();
    known
        .map(|name| (strsim::jaro_winkler(&word, name), name))
        .filter(|(similarity, _)| *similarity >= NEAR)
        .max_by(|one, other| one.0.total_cmp(&other.0))
        .map(|(_, name)| name)
}
