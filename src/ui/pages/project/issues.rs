//! Issues: a board by state.

use askama::Template;
use axum::Router;
use axum::response::Response;
use helmdeck_forge::issues::{IssueCounts, IssueList, Item, priority};

use super::{API, Tab, Top, answered, live_frame};
use crate::Ui;
use crate::frame::{Frame, page};
use crate::request::{Visit, page_at};
use crate::rest::segment;

/// Number of issues on a page.
const LIMIT: usize = 100;

pub(super) fn routes() -> Router<Ui> {
    Router::new().route("/ui/project/issues", page_at(|visit| Box::pin(list(visit))))
}

/// Issues of one state.
struct Column {
    state: String,
    items: Vec<Item>,
}

/// Sorts issues into columns: `Open` first, states that end an issue last, others in the order of
/// their first issue.
fn columns(items: Vec<Item>) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for item in items {
        let state = item
            .issue
            .state
            .clone()
            .unwrap_or_else(|| "No state".to_owned());
        match columns.iter_mut().find(|column| column.state == state) {
            Some(column) => column.items.push(item),
            None => columns.push(Column {
                state,
                items: vec![item],
            }),
        }
    }
    columns.sort_by_key(|column| {
        let over = column.items.iter().all(|item| item.over);
        (over, column.state != "Open")
    });
    columns
}

#[derive(Template)]
#[template(path = "project/issues.html")]
struct IssuesPage {
    frame: Frame,
    top: Top,
    scope: String,
    scopes: [(&'static str, &'static str); 5],
    counts: IssueCounts,
    columns: Vec<Column>,
    shown: usize,
    total: usize,
    next: Option<String>,
}

crate::frame::framed!(IssuesPage);

impl IssuesPage {
    fn path(&self, item: &Item) -> String {
        format!("/ui/project/issues/{}", segment(&item.issue.linear_id))
    }

    fn priority(&self, item: &Item) -> Option<&'static str> {
        priority(item.issue.priority)
    }
}

async fn list(
    Visit {
        ui, caller, query, ..
    }: Visit,
) -> Response {
    let state = super::super::State::of(&query);
    let answer = async {
        let route = format!(
            "{API}/issues?limit={LIMIT}{}",
            state.query(&["scope", "after"])
        );
        let list: IssueList = ui.rest.output(&caller, &route).await?;
        Ok(page(&IssuesPage {
            frame: live_frame("Issues", &ui, &caller),
            top: Top::new(Tab::Issues, &state, &ui, &caller),
            scope: state.get("scope").to_owned(),
            scopes: [
                ("", "Open"),
                ("ready", "Ready"),
                ("mine", "Mine"),
                ("done", "Done"),
                ("all", "All"),
            ],
            counts: list.counts,
            shown: list.page.items.len(),
            columns: columns(list.page.items),
            total: list.page.total,
            next: list.page.next,
        }))
    };
    answered(&ui, &caller, Tab::Issues, answer.await)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(state: &str, over: bool) -> Item {
        let text = format!(
            r#"{{"over":{over},"ready":false,"issue":{{"linear_id":"A-1","title":"t","state":"{state}"}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn open_issues_come_first_and_done_last() {
        let all = vec![
            item("Done", true),
            item("In Progress", false),
            item("Open", false),
            item("Done", true),
        ];
        let columns = columns(all);
        let names: Vec<_> = columns
            .iter()
            .map(|column| (column.state.as_str(), column.items.len()))
            .collect();
        assert_eq!(names, [("Open", 1), ("In Progress", 1), ("Done", 2)]);
    }
}
