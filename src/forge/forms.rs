//! Forms of new issues: `linear/templates/*.yaml`.
//!
//! A form names its fields. Their values become the title and the description of an issue, and come
//! back from them.

mod body;
mod check;
mod options;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Category, Error, Result};
use crate::issues::{AddIssue, IssueChanged, IssueFields};
use crate::json::{Json, Members};
use crate::layout::TEMPLATES;
use crate::project::Project;
use crate::repair::{Damaged, Extent};
use helmdeck_forge_files::yaml::{self, Yaml};

/// Name of the field that is the title of the issue. It is always required.
const TITLE: &str = "title";

/// The forms of a project.
#[derive(Debug, Clone, Copy)]
pub struct Forms<'a> {
    project: &'a Project,
}

/// A form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Form {
    /// Its name, which is the type of its issues.
    pub template: String,
    /// Its fields, in order.
    pub fields: Vec<Field>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

/// A field of a form.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: FieldType,
    /// Whether it must have a value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
    /// What its whole value must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// How the pattern is read. Default: as a regular expression, but `[BUG] *` and the like as a
    /// wildcard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pattern_kind: Option<PatternKind>,
    /// What can be chosen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<Choice>,
    /// Minimum number of items.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_items: Option<usize>,
    /// Members that are not known here.
    #[serde(flatten)]
    pub other: Members,
}

/// Type of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FieldType {
    /// A line.
    Text,
    /// Markdown.
    Markdown,
    /// The name of something else, such as `RFC-9060`.
    Reference,
    /// Some of the options.
    MultiSelect,
    /// One of the options.
    Select,
    /// A list of what must hold. It becomes the criteria of the issue.
    Checklist,
}

/// How a pattern is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PatternKind {
    /// As a regular expression.
    Regex,
    /// As a text in which `*` is anything but nothing.
    Wildcard,
}

/// An option, or where options come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Choice {
    /// An option.
    One(String),
    /// All that the project has.
    From {
        /// What it has.
        from: OptionSource,
    },
}

/// Where options come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptionSource {
    /// The names of the crates of the workspace.
    WorkspaceCrates,
    /// The names of the skills.
    Skills,
    /// The ids of the features.
    Features,
    /// The labels of the issues.
    Labels,
}

/// The values of a form, by field. A list has a value for each item.
pub type Values = BTreeMap<String, Vec<String>>;

/// A form in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its file.
    pub path: String,
    /// The names of its fields.
    pub fields: Vec<String>,
    /// Why it cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A form, and what can be chosen in it now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shown {
    /// Its file.
    pub path: String,
    /// The form.
    pub form: Form,
    /// The options of its fields, by field.
    pub options: BTreeMap<String, Vec<String>>,
}

impl<'a> Forms<'a> {
    /// Returns the forms of a project.
    #[must_use]
    pub const fn new(project: &'a Project) -> Self {
        Self { project }
    }

    /// Lists the forms, by name. One that cannot be read is listed with the reason.
    ///
    /// # Errors
    /// Errors from reading the folder.
    pub fn list(&self) -> Result<Vec<Listed>> {
        let mut all = Vec::new();
        for entry in self
            .project
            .files()
            .list(TEMPLATES)?
            .into_iter()
            .filter(|entry| !entry.folder)
        {
            let Some(name) = stem(&entry.name) else {
                continue;
            };
            let path = format!("{TEMPLATES}/{}", entry.name);
            let (fields, problem) = match self.read(&path) {
                Ok(form) => (
                    form.fields.into_iter().map(|field| field.name).collect(),
                    None,
                ),
                Err(error) => (Vec::new(), Some(error.message)),
            };
            all.push(Listed {
                name: name.to_owned(),
                path,
                fields,
                problem,
            });
        }
        Ok(all)
    }

    /// Returns the forms that cannot be used, each with its problem.
    pub(crate) fn damaged(&self) -> Result<Vec<Damaged>> {
        let damaged = self.list()?.into_iter().filter_map(|form| {
            let detail = format!("the form cannot be used: {}", form.problem?);
            Some(Damaged {
                path: form.path,
                extent: Extent::Whole,
                detail,
                next: None,
            })
        });
        Ok(damaged.collect())
    }

    /// Returns a form, and what can be chosen in it now.
    ///
    /// # Errors
    /// `NotFound`; `Corrupt` with the line.
    pub fn show(&self, name: &str) -> Result<Shown> {
        let (path, form) = self.named(name)?;
        let mut all = BTreeMap::new();
        for field in form.fields.iter().filter(|field| !field.options.is_empty()) {
            all.insert(field.name.clone(), options::of(self.project, field)?);
        }
        Ok(Shown {
            path,
            form,
            options: all,
        })
    }

    /// Adds an issue with the values of a form, and with `more` besides: labels, priority and the
    /// like.
    ///
    /// # Errors
    /// `Usage` (`E_FORM`) with every wrong field at once; as [`Self::show`]; errors from adding it.
    pub fn add(&self, name: &str, values: &Values, more: &IssueFields) -> Result<IssueChanged> {
        let shown = self.show(name)?;
        let checked = check::check(&shown, values);
        if !checked.errors.is_empty() {
            return Err(Error::new(
                Category::Usage,
                "E_FORM",
                format!("the form {name}: {}", checked.errors.join("; ")),
            )
            .next(format!("helmdeck forge form list {name}")));
        }
        let form = shown.form;
        let lists = form
            .fields
            .iter()
            .filter(|field| field.kind == FieldType::Checklist);
        let mut criteria = more.criteria.clone().unwrap_or_default();
        criteria.extend(
            lists
                .filter_map(|field| values.get(&field.name))
                .flatten()
                .cloned(),
        );
        let add = AddIssue {
            title: values
                .get(TITLE)
                .and_then(|all| all.first())
                .cloned()
                .unwrap_or_default(),
            fields: IssueFields {
                description: Some(body::write(&form, values)),
                kind: more.kind.clone().or_else(|| Some(form.template.clone())),
                criteria: Some(criteria),
                ..more.clone()
            },
            ..AddIssue::default()
        };
        let mut changed = self.project.issues().add(&add)?;
        changed.warnings.extend(checked.warnings);
        Ok(changed)
    }

    fn named(&self, name: &str) -> Result<(String, Form)> {
        let all = self.project.files().list(TEMPLATES)?;
        let entry = all
            .iter()
            .find(|entry| !entry.folder && stem(&entry.name) == Some(name));
        let entry = entry.ok_or_else(|| {
            let known: Vec<&str> = all.iter().filter_map(|entry| stem(&entry.name)).collect();
            let known = if known.is_empty() {
                "there are none".to_owned()
            } else {
                known.join(", ")
            };
            Error::not_found(format!("there is no form {name:?}"))
                .hint(format!("the forms are files in {TEMPLATES}: {known}"))
                .next("helmdeck forge form list")
        })?;
        let path = format!("{TEMPLATES}/{}", entry.name);
        let form = self.read(&path)?;
        Ok((path, form))
    }

    fn read(&self, path: &str) -> Result<Form> {
        let bytes = self
            .project
            .files()
            .read(path)?
            .ok_or_else(|| Error::not_found(format!("there is no {path}")))?;
        let corrupt =
            |what: String| Error::new(Category::Corrupt, "E_CORRUPT", format!("{path}{what}"));
        let text = String::from_utf8(bytes).map_err(|_| corrupt(": it is no UTF-8".to_owned()))?;
        parse(&text).map_err(|(line, what)| {
            corrupt(line.map_or_else(|| format!(": {what}"), |line| format!(":{line}: {what}")))
        })
    }
}

/// Returns the name of a form, by the name of its file.
fn stem(file: &str) -> Option<&str> {
    file.strip_suffix(".yaml")
        .or_else(|| file.strip_suffix(".yml"))
}

/// Reads the text of a form.
///
/// # Errors
/// The line, if it is known, and what is wrong.
fn parse(text: &str) -> Result<Form, (Option<usize>, String)> {
    let value = yaml::parse(text).map_err(|damage| (Some(damage.line), damage.what))?;
    let bytes = serde_json::to_vec(&json(value)).map_err(|error| (None, error.to_string()))?;
    let form: Form = serde_json::from_slice(&bytes).map_err(|error| (None, error.to_string()))?;
    check::check_form(&form).map_err(|what| (None, what))?;
    Ok(form)
}

/// Returns a value as JSON. A plain text is what it looks like, as in YAML's core schema.
fn json(value: Yaml) -> Json {
    match value {
        Yaml::List(items) => Json::Array(items.into_iter().map(json).collect()),
        Yaml::Map(members) => Json::Object(Members(
            members
                .into_iter()
                .map(|(name, one)| (name, json(one)))
                .collect(),
        )),
        Yaml::Text { text, plain: false } => Json::String(text),
        Yaml::Text { text, plain: true } => match text.as_str() {
            "" | "~" | "null" | "Null" | "NULL" => Json::Null,
            "true" | "True" | "TRUE" => Json::Bool(true),
            "false" | "False" | "FALSE" => Json::Bool(false),
            number if number.starts_with(|first: char| first.is_ascii_digit() || first == '-') => {
                serde_json::from_str(number)
                    .map_or_else(|_| Json::String(text.clone()), Json::Number)
            }
            _ => Json::String(text),
        },
    }
}
