//! `helmdeck forge form`.

use std::io::Read as _;
use std::path::Path;

use helmdeck_forge::forms::{Field, FieldType, Forms, Shown, Values};
use helmdeck_forge::issues::IssueFields;
use helmdeck_forge::{Error, Project};
use serde_json::Value;

use super::context::{Answer, CommandContext, Stop, unreadable};
use crate::args::forge::{FormCommand, FormValues};
use helmdeck_core::text::columns;

/// Limit of a file with values, in bytes.
const MAX_VALUES: u64 = 1 << 20;

pub(super) fn run(on: &CommandContext, command: &FormCommand) -> Answer {
    use FormCommand as C;
    match command {
        C::List { name: None } => {
            let listed = Forms::new(&on.look()?).list()?;
            on.print(&listed, || {
                let rows: Vec<_> = listed
                    .iter()
                    .map(|form| {
                        let about = form
                            .problem
                            .clone()
                            .unwrap_or_else(|| form.fields.join(", "));
                        vec![form.name.clone(), about]
                    })
                    .collect();
                if rows.is_empty() {
                    "there is no form".to_owned()
                } else {
                    columns(&rows)
                }
            })
        }
        C::List { name: Some(name) } => {
            let shown = Forms::new(&on.look()?).show(name)?;
            on.print(&shown, || shown_text(&shown))
        }
        C::New {
            form,
            label,
            priority,
        } => {
            let project = on.open()?;
            let mut given = values(form)?;
            ask(on, &project, &form.name, &mut given)?;
            let more = IssueFields {
                labels: (!label.is_empty()).then(|| label.clone()),
                priority: *priority,
                ..IssueFields::default()
            };
            let changed =
                on.change(|project| Forms::new(project).add(&form.name, &given, &more))?;
            on.print(&changed, || changed.text())
        }
    }
}

/// Reads the values of a command line.
fn values(form: &FormValues) -> Result<Values, Stop> {
    let mut values = match &form.values {
        Some(file) => read(file)?,
        None => Values::new(),
    };
    let mut named = Values::new();
    for pair in &form.field {
        let (field, value) = pair
            .split_once('=')
            .ok_or_else(|| Error::usage(format!("--field {pair:?} has no = after the field")))?;
        named
            .entry(field.trim().to_owned())
            .or_default()
            .push(value.to_owned());
    }
    // The command line comes before the file.
    values.extend(named);
    Ok(values)
}

fn read(file: &Path) -> Result<Values, Stop> {
    let io = |error| Stop::from(unreadable(file, &error));
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin()
            .take(MAX_VALUES)
            .read_to_string(&mut text)
            .map_err(io)?;
    } else {
        std::fs::File::open(file)
            .map_err(io)?
            .take(MAX_VALUES)
            .read_to_string(&mut text)
            .map_err(io)?;
    }
    let wrong = |what: String| Stop::from(Error::usage(format!("{}: {what}", file.display())));
    let members: serde_json::Map<String, Value> =
        serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut values = Values::new();
    for (field, value) in members {
        let all = match value {
            Value::Null => continue,
            Value::Array(items) => items,
            one => vec![one],
        };
        let mut texts = Vec::new();
        for one in all {
            match one {
                Value::String(text) => texts.push(text),
                Value::Number(number) => texts.push(number.to_string()),
                _ => {
                    return Err(wrong(format!(
                        "{field} is neither a text nor a list of texts"
                    )));
                }
            }
        }
        values.insert(field, texts);
    }
    Ok(values)
}

/// Asks for the fields that have no value, at a terminal.
fn ask(on: &CommandContext, project: &Project, name: &str, values: &mut Values) -> Answer {
    if !on.is_interactive() {
        return Ok(());
    }
    let shown = Forms::new(project).show(name)?;
    for field in shown
        .form
        .fields
        .iter()
        .filter(|field| !values.contains_key(&field.name))
        .cloned()
        .collect::<Vec<_>>()
    {
        let list = matches!(field.kind, FieldType::MultiSelect | FieldType::Checklist);
        let mut given = Vec::new();
        while let Some(value) = on.line(&format!("{}:", about(&shown, &field)))? {
            given.push(value);
            if !list {
                break;
            }
        }
        if !given.is_empty() {
            values.insert(field.name, given);
        }
    }
    Ok(())
}

/// Returns a field on one line: `qa_requirements (select: unit_tests, manual_qa)`.
fn about(shown: &Shown, field: &Field) -> String {
    let kind = serde_json::to_value(field.kind).ok();
    let mut words = vec![
        kind.as_ref()
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned(),
    ];
    if field.required || field.name == "title" {
        words.push("required".to_owned());
    }
    words.extend(field.min_items.map(|least| format!("at least {least}")));
    words.extend(
        field
            .pattern
            .as_ref()
            .map(|pattern| format!("as {pattern}")),
    );
    let options = shown
        .options
        .get(&field.name)
        .map(|all| all.join(", "))
        .filter(|all| !all.is_empty());
    let options = options.map(|all| format!(": {all}")).unwrap_or_default();
    format!("{} ({}){options}", field.name, words.join(", "))
}

fn shown_text(shown: &Shown) -> String {
    let mut lines = vec![format!("{} ({})", shown.form.template, shown.path)];
    lines.extend(
        shown
            .form
            .fields
            .iter()
            .map(|field| format!("  {}", about(shown, field))),
    );
    lines.join("\n")
}
