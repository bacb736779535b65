//! Route of the statistics of calls: the last hour, day or week, by pack and by slot of time.

use axum::extract::State;
use axum::response::Response;
use helmdeck_core::{CacheStatus, Caller, Permission};
use helmdeck_engine::{Numbers, Window};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::reply::{self, Problems};
use super::request::Params;
use super::state::EngineState;
use crate::access::{By, need};
use crate::app::App;
use crate::problem::Problem;

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(show))
}

/// Which statistics to show.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct StatisticsQuery {
    /// `hour` (by minutes), `day` (by quarters of an hour) or `week` (by hours); `hour` by default
    #[param(value_type = Option<String>)]
    window: Option<Window>,
    /// Only this pack
    pack: Option<String>,
}

/// Refuses callers that may not see data about the whole server.
pub(super) fn need_statistics(caller: &Caller) -> Result<(), Problem> {
    need(caller, &Permission::MetricsRead)
}

/// Shows how many calls ended, how many failed, what the cache did and saved, and how long calls
/// took.
///
/// The numbers are of all callers and name none, as `/metrics`: they need `metrics:read`, and have
/// the packs that the caller may run. They are read every ten seconds, and survive a restart if
/// there is a data folder. Durations are estimated from a histogram, whose bounds are 44 % apart.
#[utoipa::path(get, path = "/api/v1/stats", tag = "operations", operation_id = "show_statistics",
    params(StatisticsQuery),
    responses((status = 200, description = "The statistics", body = ref("#/components/schemas/Statistics")), Problems))]
async fn show(
    State(state): State<EngineState>,
    By(caller): By,
    asked: Params<StatisticsQuery>,
) -> Result<Response, Problem> {
    need_statistics(&caller)?;
    let asked = asked.read()?;
    let window = asked.window.unwrap_or(Window::Hour);
    let report = state.engine.statistics().report(window, |pack| {
        caller.permissions.allow_run(pack)
            && asked.pack.as_deref().is_none_or(|wanted| wanted == pack)
    });
    let slots: Vec<Value> = report
        .slots
        .iter()
        .map(|slot| {
            let mut shown = numbers(&slot.numbers);
            shown.insert("start".to_owned(), slot.start.to_rfc3339().into());
            Value::Object(shown)
        })
        .collect();
    let mut saved_usd: Option<f64> = None;
    let packs: Vec<Value> = report
        .packs
        .iter()
        .map(|(pack, counted)| {
            let mut shown = numbers(counted);
            shown.insert("pack".to_owned(), pack.as_str().into());
            if let Some(usd) =
                state
                    .engine
                    .saved_usd(pack, counted.saved_calls, counted.saved_upstream_calls)
            {
                saved_usd = Some(saved_usd.unwrap_or_default() + usd);
                shown.insert("saved_usd".to_owned(), usd.into());
            }
            Value::Object(shown)
        })
        .collect();
    let mut total = numbers(&report.total);
    total.extend(saved_usd.map(|usd| ("saved_usd".to_owned(), usd.into())));
    reply::json(&json!({
        "window": window,
        "slot_s": window.slot_seconds(),
        "total": total,
        "packs": packs,
        "slots": slots,
    }))
}

fn numbers(numbers: &Numbers) -> Map<String, Value> {
    let answers: Map<String, Value> = CacheStatus::ALL
        .into_iter()
        .filter(|status| numbers.answered(*status) > 0)
        .map(|status| (status.as_str().to_owned(), numbers.answered(status).into()))
        .collect();
    let shown = json!({
        "calls": numbers.calls,
        "errors": numbers.errors,
        "cache": answers,
        "saved_calls": numbers.saved_calls,
        "saved_ms": numbers.saved_us / 1_000,
        "saved_upstream_calls": numbers.saved_upstream_calls,
        "p50_us": numbers.quantile_us(0.5),
        "p99_us": numbers.quantile_us(0.99),
    });
    match shown {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}
