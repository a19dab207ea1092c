//! The routes.

use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use serde_json::json;

use super::Front;
use crate::clock::Clock;
use crate::desk::{Answer, Ask, Whose};
use crate::fail::Order;
use crate::proc::PodUid;
use crate::views::WorkersView;

/// Content type of Prometheus' text format.
pub const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Rooms in an answer where no `limit` is given.
const ROOMS: usize = 1000;
/// Most rooms in one answer.
const ROOMS_MAX: usize = 16_384;

const FOR_ALL: &str = "/metrics /healthz /readyz /workers /workers/{pid} /workers/pod/{uid}";
const FOR_ROOT: &str =
    "/metrics /healthz /readyz /workers /workers/{pid} /workers/pod/{uid} /rooms /agent /fail";

/// The routes on the TCP address.
pub(super) fn for_all(front: &Front) -> Router {
    shared().fallback(async || unknown(FOR_ALL)).with_state(front.clone())
}

/// The routes on the Unix socket.
pub(super) fn for_root(front: &Front) -> Router {
    shared()
        .route("/rooms", get(rooms))
        .route("/agent", get(agent))
        .route("/fail", post(fail))
        .fallback(async || unknown(FOR_ROOT))
        .with_state(front.clone())
}

fn shared() -> Router<Front> {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/workers", get(workers))
        .route("/workers/{pid}", get(worker))
        .route("/workers/pod/{uid}", get(pod))
}

fn unknown(routes: &str) -> Response {
    let routes: Vec<&str> = routes.split(' ').collect();
    let told = json!({ "error": "there is no such path here", "routes": routes });
    (StatusCode::NOT_FOUND, Json(told)).into_response()
}

fn refuse(status: StatusCode, error: &impl ToString) -> Response {
    (status, Json(json!({ "error": error.to_string() }))).into_response()
}

fn another_answer() -> Response {
    refuse(StatusCode::INTERNAL_SERVER_ERROR, &"another answer than asked for")
}

fn said<T: Serialize>(well: bool, view: &T) -> Response {
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(view)).into_response()
}

async fn metrics(State(front): State<Front>) -> Response {
    // Thousands of series take a while to render: health must not wait for them.
    let scrape = front.scrape.clone();
    let text = tokio::task::spawn_blocking(move || scrape.text()).await;
    match text {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, TEXT_FORMAT)], text).into_response(),
        Ok(Err(error)) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error),
        Err(error) => refuse(StatusCode::INTERNAL_SERVER_ERROR, &error),
    }
}

async fn healthz(State(front): State<Front>) -> Response {
    let (health, now) = (&front.asker.health, Clock::now());
    let age = health.age(now).secs_f64();
    said(health.is_well(now), &json!({ "well": health.is_well(now), "loop_age_s": age }))
}

async fn readyz(State(front): State<Front>) -> Response {
    let ready = front.asker.health.is_ready();
    let why = (!ready).then_some("the first census is not done");
    // An agent that lacks something watches: to take it out of service would help nobody.
    let lacks = front.asker.health.lacks();
    said(ready, &json!({ "ready": ready, "why": why, "lacks": lacks }))
}

async fn ask(front: &Front, ask: Ask) -> Result<Answer, Response> {
    let answer = front.asker.ask(ask).await;
    answer.map_err(|silence| refuse(StatusCode::SERVICE_UNAVAILABLE, &silence))
}

async fn workers(State(front): State<Front>, RawQuery(query): RawQuery) -> Response {
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        let told = format!("unknown `{query}`: the list takes no query");
        return refuse(StatusCode::BAD_REQUEST, &told);
    }
    match ask(&front, Ask::Workers(Whose::All)).await {
        Ok(Answer::Workers(view)) => said(true, &view),
        Ok(_) => another_answer(),
        Err(refusal) => refusal,
    }
}

/// How the worker of a process is, for routers, and with `only=own` for its liveness probe.
async fn worker(
    State(front): State<Front>,
    Path(text): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let Ok(pid) = text.parse() else {
        let told = format!("`{text}` is no process id: give a number, such as /workers/4711");
        return refuse(StatusCode::NOT_FOUND, &told);
    };
    let own_only = match own_only(query.as_deref()) {
        Ok(own_only) => own_only,
        Err(told) => return refuse(StatusCode::BAD_REQUEST, &told),
    };
    match watched(&front, pid).await {
        Ok(view) => said(!is_sick(&view, own_only), &view),
        Err(refusal) => refusal,
    }
}

/// The workers of a process; a refusal where the agent watches none of it.
async fn watched(front: &Front, pid: u32) -> Result<WorkersView, Response> {
    match ask(front, Ask::Workers(Whose::Process(pid))).await? {
        Answer::Workers(view) if view.workers.is_empty() => {
            let told = format!("process {pid} is no worker under watch: /workers lists them");
            Err(refuse(StatusCode::NOT_FOUND, &told))
        }
        Answer::Workers(view) => Ok(view),
        _ => Err(another_answer()),
    }
}

/// How the workers of a pod are, for its own probes: a container knows its pod, not its host's
/// process ids. A pod of which no worker is known is well as far as can be said: it may just start.
async fn pod(
    State(front): State<Front>,
    Path(text): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(uid) = PodUid::parse(&text) else {
        let told = format!("`{text}` is no UID of a pod: give its metadata.uid");
        return refuse(StatusCode::NOT_FOUND, &told);
    };
    let own_only = match own_only(query.as_deref()) {
        Ok(own_only) => own_only,
        Err(told) => return refuse(StatusCode::BAD_REQUEST, &told),
    };
    match ask(&front, Ask::Workers(Whose::Pod(uid))).await {
        Ok(Answer::Workers(view)) => said(!is_sick(&view, own_only), &view),
        Ok(_) => another_answer(),
        Err(refusal) => refusal,
    }
}

/// Whether a query asks for troubles only that a restart of the worker helps against.
fn own_only(query: Option<&str>) -> Result<bool, String> {
    match query {
        None | Some("") => Ok(false),
        Some("only=own") => Ok(true),
        Some(other) => Err(format!("unknown `{other}`: there is `only=own`, for liveness probes")),
    }
}

const fn is_sick(view: &WorkersView, own_only: bool) -> bool {
    if own_only { view.own_fault } else { view.wedged }
}

async fn rooms(State(front): State<Front>, RawQuery(query): RawQuery) -> Response {
    let (most, pid) = match limits(query.as_deref().unwrap_or_default()) {
        Ok(limits) => limits,
        Err(told) => return refuse(StatusCode::BAD_REQUEST, &told),
    };
    let view = match ask(&front, Ask::Rooms(most, pid)).await {
        Ok(Answer::Rooms(view)) => view,
        Ok(_) => return another_answer(),
        Err(refusal) => return refusal,
    };
    // A worker that is idle has no rooms, and whoever is no worker: only the first is an answer.
    match pid.filter(|_| view.open + view.left == 0) {
        Some(pid) => {
            watched(&front, pid).await.map_or_else(|refusal| refusal, |_| said(true, &view))
        }
        None => said(true, &view),
    }
}

async fn agent(State(front): State<Front>) -> Response {
    match ask(&front, Ask::Agent).await {
        Ok(Answer::Agent(view)) => said(true, &view),
        Ok(_) => another_answer(),
        Err(refusal) => refusal,
    }
}

/// That a room be failed: what became of it, whatever that was.
async fn fail(State(front): State<Front>, RawQuery(query): RawQuery) -> Response {
    let order = match order(query.as_deref().unwrap_or_default()) {
        Ok(order) => order,
        Err(told) => return refuse(StatusCode::BAD_REQUEST, &told),
    };
    match ask(&front, Ask::Fail(order)).await {
        Ok(Answer::Fail(line)) => said(true, &line),
        Ok(_) => another_answer(),
        Err(refusal) => refusal,
    }
}

/// What a query says.
fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// A process id in one.
fn pid_of(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_error| format!("`pid` is `{text}`: give a process id"))
}

/// `room`, `pid` and `dry_run` of a query. What is not said to be dry is done.
fn order(query: &str) -> Result<Order, String> {
    let (mut room, mut pid, mut dry_run) = (None, None, false);
    for (key, text) in pairs(query) {
        match key {
            "room" => {
                let told = |_| format!("`room` is `{text}`: give a room's id");
                room = Some(text.parse().map_err(told)?);
            }
            "pid" => pid = Some(pid_of(text)?),
            "dry_run" => {
                let told = |_| format!("`dry_run` is `{text}`: give true or false");
                dry_run = text.parse().map_err(told)?;
            }
            other => {
                return Err(format!("unknown `{other}`: there are `room`, `pid` and `dry_run`"));
            }
        }
    }
    let room = room.ok_or("`room` is missing: give a room's id")?;
    Ok(Order { room, pid, dry_run })
}

/// `limit` and `pid` of a query.
fn limits(query: &str) -> Result<(usize, Option<u32>), String> {
    let (mut most, mut pid) = (ROOMS, None);
    for pair in pairs(query) {
        match pair {
            ("limit", text) => {
                most = text.parse().ok().filter(|most| *most <= ROOMS_MAX).ok_or_else(|| {
                    format!("`limit` is `{text}`: give a number, at most {ROOMS_MAX}")
                })?;
            }
            ("pid", text) => pid = Some(pid_of(text)?),
            (other, _) => return Err(format!("unknown `{other}`: there are `limit` and `pid`")),
        }
    }
    Ok((most, pid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_liveness_probe_asks_for_the_workers_own_troubles() {
        assert_eq!(own_only(None), Ok(false));
        assert_eq!(own_only(Some("")), Ok(false));
        assert_eq!(own_only(Some("only=own")), Ok(true));
        assert!(own_only(Some("only=foo")).unwrap_err().contains("`only=foo`"));
    }

    #[test]
    fn an_order_is_read_and_a_bad_one_named() {
        let read = order("room=7&pid=3&dry_run=true");
        assert_eq!(read, Ok(Order { room: 7, pid: Some(3), dry_run: true }));
        assert_eq!(order("room=0"), Ok(Order { room: 0, pid: None, dry_run: false }));
        for (query, told) in [
            ("", "`room` is missing"),
            ("room=x", "`room` is `x`"),
            ("room=1&pid=x", "`pid` is `x`"),
            ("room=1&dry_run=1", "`dry_run` is `1`"),
            ("room=1&dry=true", "unknown `dry`"),
        ] {
            assert!(order(query).unwrap_err().contains(told), "{query}");
        }
    }

    #[test]
    fn limits_are_read_and_bad_ones_named() {
        assert_eq!(limits(""), Ok((ROOMS, None)));
        assert_eq!(limits("limit=5&pid=7"), Ok((5, Some(7))));
        assert_eq!(limits("limit=0"), Ok((0, None)));
        for (query, told) in [
            ("limit=x", "`limit` is `x`"),
            ("limit=99999", "at most 16384"),
            ("limit", "`limit` is ``"),
            ("pid=-1", "`pid` is `-1`"),
            ("sort=age", "unknown `sort`"),
        ] {
            assert!(limits(query).unwrap_err().contains(told), "{query}");
        }
    }
}
