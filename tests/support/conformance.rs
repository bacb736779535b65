//! What the MCP conformance suite wants to find at a server, beside the packs: tools that answer
//! with images, ask the user or need several rounds, prompts, resources. It stands behind the real
//! server as what an embedder adds to its MCP transport.
//!
//! The words, names and texts are the suite's; they are data, in `conformance/fixtures.json`. Here
//! is only what moves.

// The suite still tests what SEP-2577 deprecates: logging, sampling, subscriptions of single
// resources.
#![expect(
    deprecated,
    reason = "clients of earlier revisions use it, and the suite tests it"
)]

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use helmdeck_engine::Engine;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities,
    CompleteRequestParams, CompleteResult, CompletionInfo, CreateMessageRequestParams,
    ElicitRequest, ErrorData, GetPromptRequestParams, GetPromptResponse, GetPromptResult,
    InputRequests, InputRequiredResult, InputResponses, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, LoggingLevel,
    LoggingMessageNotificationParam, PaginatedRequestParams, ProgressNotificationParam,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Reference, ResultType,
    ServerCapabilities, ServerConfig, ServerRequest, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

/// The pause that the suite wants between two notifications of one run.
const PAUSE: Duration = Duration::from_millis(50);

/// The fixtures, and the engine behind the same transport.
pub(crate) struct Fixtures {
    data: Value,
    engine: Engine,
    /// The packs folder of the engine.
    packs: PathBuf,
    /// The states that were handed out, each with its fixture and round. No other is taken back.
    states: Mutex<HashMap<String, (String, usize)>>,
    next_state: AtomicU64,
    log_level: Mutex<LoggingLevel>,
    subscribed: Mutex<HashSet<String>>,
    prompts_changed: watch::Sender<()>,
    /// One for each accepted listener that does not listen yet: no change in between is lost.
    listeners: Mutex<VecDeque<watch::Receiver<()>>>,
}

/// What came of a round.
enum Round {
    /// The client has to bring this first.
    Ask(InputRequiredResult),
    /// It brought all that was requested.
    Done(InputResponses),
}

fn read<T: DeserializeOwned>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_else(|error| panic!("fixtures.json: {error}: {value}"))
}

/// Makes a result; the server takes the type off again for clients of revisions that know none.
fn result(fixture: &Value) -> CallToolResult {
    let mut result: CallToolResult = read(fixture);
    result.result_type = Some(ResultType::COMPLETE);
    result
}

fn text(text: &str) -> CallToolResult {
    result(&json!({"content": [{"type": "text", "text": text}]}))
}

impl Fixtures {
    /// Makes the fixtures for an engine whose packs are in a folder.
    pub(crate) fn new(engine: Engine, packs: PathBuf) -> Self {
        Self {
            data: serde_json::from_str(include_str!("conformance/fixtures.json")).unwrap(),
            engine,
            packs,
            states: Mutex::default(),
            next_state: AtomicU64::new(1),
            log_level: Mutex::new(LoggingLevel::Debug),
            subscribed: Mutex::default(),
            prompts_changed: watch::Sender::new(()),
            listeners: Mutex::default(),
        }
    }

    fn tools(&self) -> Vec<Tool> {
        let mut tools = self.data["tools"].clone();
        for tool in tools.as_array_mut().unwrap() {
            if tool.get("inputSchema").is_none() {
                tool["inputSchema"] = json!({"type": "object", "properties": {}});
            }
        }
        read(&tools)
    }

    /// Adds a pack, or takes it away: the tools change because the packs did.
    async fn change_the_packs(&self) {
        let (file, engine) = (self.packs.join("changing.toml"), self.engine.clone());
        let change = move || {
            if file.exists() {
                std::fs::remove_file(&file).unwrap();
            } else {
                let manifest = "name = \"conformance.changing\"\nversion = \"v1\"\ndescription = \"Comes and goes\"\n\
                    [handler]\ncommand = [\"/bin/cat\"]\n";
                std::fs::write(&file, manifest).unwrap();
            }
            engine.reload();
        };
        tokio::task::spawn_blocking(change).await.unwrap();
    }

    /// Sends a log message if the caller wants it.
    ///
    /// Since 2026-07-28 the request says so, before that the session.
    async fn log(&self, context: &RequestContext<RoleServer>, message: &str) {
        let is_stateless = context.meta.protocol_version().is_some();
        let wanted = if is_stateless {
            context.meta.log_level()
        } else {
            Some(*self.log_level.lock().unwrap())
        };
        if wanted.is_some_and(|least| severity(least) <= severity(LoggingLevel::Info)) {
            let message = LoggingMessageNotificationParam::new(LoggingLevel::Info, json!(message))
                .with_logger("test");
            context.peer.notify_logging_message(message).await.unwrap();
        }
    }

    async fn progress(&self, context: &RequestContext<RoleServer>, progress: f64) {
        if let Some(token) = context.meta.get_progress_token() {
            let update = ProgressNotificationParam::new(token, progress).with_total(100.0);
            context.peer.notify_progress(update).await.unwrap();
        }
    }

    async fn elicit(
        &self,
        name: &str,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let mut question = self.data["elicitations"][name].clone();
        question["mode"] = json!("form");
        if let Some(message) = arguments.get("message") {
            question["message"] = message.clone();
        }
        let question = ServerRequest::ElicitRequest(ElicitRequest::new(read(&question)));
        let answer = context.peer.send_request(question).await;
        let answer =
            json!(answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?);
        let (action, content) = (&answer["action"], &answer["content"]);
        Ok(text(&format!(
            "The user said: action={action}, content={content}"
        )))
    }

    async fn sample(
        &self,
        arguments: &Value,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        let question = json!({
            "messages": [{"role": "user", "content": {"type": "text", "text": arguments["prompt"]}}],
            "maxTokens": 100,
        });
        let answer = context
            .peer
            .create_message(read::<CreateMessageRequestParams>(&question))
            .await;
        let answer = answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        let said = json!(answer)["content"]["text"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        Ok(text(&format!("LLM response: {said}")))
    }

    /// Takes a fixture of several rounds one step on, with what the client brought.
    fn round(
        &self,
        name: &str,
        responses: Option<&InputResponses>,
        state: Option<&str>,
        context: &RequestContext<RoleServer>,
    ) -> Result<Round, ErrorData> {
        let rounds = self.data["rounds"][name]["rounds"].as_array().unwrap();
        let stateful = self.data["rounds"][name]["stateful"] == true;
        let known = state.map(|state| self.states.lock().unwrap().get(state).cloned());
        let at = match known {
            Some(Some((of, at))) if of == name => at,
            Some(_) if stateful => {
                return Err(ErrorData::invalid_params(
                    "requestState is not one that this tool handed out",
                    None,
                ));
            }
            _ => 0,
        };
        let requests = possible(
            read(&rounds[at]),
            &context.client_capabilities().unwrap_or_default(),
        )?;
        // Without its state no client can have answered a stateful round.
        let answered = (!stateful || state.is_some())
            && responses.is_some_and(|given| is_answered(&requests, given));
        let next = match (answered, rounds.get(at + 1)) {
            (false, _) => (requests, at),
            (true, Some(more)) => (read(more), at + 1),
            (true, None) => return Ok(Round::Done(responses.cloned().unwrap_or_default())),
        };
        let state = stateful.then(|| {
            let state = format!(
                "{name}/{}/{}",
                next.1,
                self.next_state.fetch_add(1, Ordering::Relaxed)
            );
            self.states
                .lock()
                .unwrap()
                .insert(state.clone(), (name.to_owned(), next.1));
            state
        });
        Ok(Round::Ask(InputRequiredResult::new(Some(next.0), state)))
    }

    fn known_resource(&self, uri: &str) -> Result<(), ErrorData> {
        let known = self.data["contents"].get(uri).is_some();
        known.then_some(()).ok_or_else(|| not_found(uri))
    }
}

fn not_found(uri: &str) -> ErrorData {
    ErrorData::resource_not_found("there is no such resource", Some(json!({"uri": uri})))
}

/// Orders the levels; rmcp's have no order.
fn severity(level: LoggingLevel) -> usize {
    let order = [
        "debug",
        "info",
        "notice",
        "warning",
        "error",
        "critical",
        "alert",
        "emergency",
    ];
    let name = json!(level);
    order.iter().position(|known| name == *known).unwrap()
}

/// Returns the requests that the client can answer.
///
/// # Errors
/// The missing capability, if it can answer none.
fn possible(
    mut requests: InputRequests,
    declared: &ClientCapabilities,
) -> Result<InputRequests, ErrorData> {
    let needs = |method: &Value| match method.as_str().unwrap() {
        "sampling/createMessage" => "sampling",
        "elicitation/create" => "elicitation",
        _ => "roots",
    };
    let declared = json!(declared);
    let mut missing = BTreeMap::new();
    requests.retain(|_, request| {
        let need = needs(&json!(request)["method"]);
        let can = declared.get(need).is_some();
        if !can {
            missing.insert(need, json!({}));
        }
        can
    });
    if requests.is_empty() {
        return Err(ErrorData::missing_required_client_capability(read(&json!(
            missing
        ))));
    }
    Ok(requests)
}

/// Returns whether each request has a possible answer. Further answers are ignored.
fn is_answered(requests: &InputRequests, responses: &InputResponses) -> bool {
    requests.iter().all(|(key, request)| {
        let Some(answer) = responses.get(key) else {
            return false;
        };
        match json!(request)["method"].as_str().unwrap() {
            "elicitation/create" => answer["action"] == "accept" && answer["content"].is_object(),
            "sampling/createMessage" => answer["content"].is_object(),
            _ => answer["roots"].is_array(),
        }
    })
}

impl ServerHandler for Fixtures {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_completions()
            .enable_logging()
            .build();
        ServerConfig::new(capabilities)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools().into_iter().find(|tool| tool.name == name)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name.as_ref();
        let arguments = json!(request.arguments.unwrap_or_default());
        if let Some(fixture) = self.data["results"].get(name) {
            return Ok(result(fixture).into());
        }
        if self.data["rounds"].get(name).is_some() {
            let (responses, state) = (
                request.input_responses.as_ref(),
                request.request_state.as_deref(),
            );
            return Ok(match self.round(name, responses, state, &context)? {
                Round::Ask(result) => result.into(),
                Round::Done(responses) => {
                    match responses.get("user_name").filter(|_| responses.len() == 1) {
                        Some(answer) => text(&format!(
                            "Hello, {}!",
                            answer["content"]["name"].as_str().unwrap_or("you")
                        )),
                        None => text(&format!("state-ok, with {}", json!(responses))),
                    }
                    .into()
                }
            });
        }
        let result = match name {
            "test_tool_with_logging" => {
                self.log(&context, "Tool execution started").await;
                tokio::time::sleep(PAUSE).await;
                self.log(&context, "Tool processing data").await;
                tokio::time::sleep(PAUSE).await;
                self.log(&context, "Tool execution completed").await;
                text("Logged three times.")
            }
            "test_logging_tool" => {
                self.log(&context, "This was asked for").await;
                text("Logged if the request asked for it.")
            }
            "test_tool_with_progress" => {
                self.progress(&context, 0.0).await;
                tokio::time::sleep(PAUSE).await;
                self.progress(&context, 50.0).await;
                tokio::time::sleep(PAUSE).await;
                self.progress(&context, 100.0).await;
                text("Done in three steps.")
            }
            "greet" => text(&format!(
                "Hello, {}!",
                arguments["name"].as_str().unwrap_or("you")
            )),
            "test_sampling" => self.sample(&arguments, &context).await?,
            name if self.data["elicitations"].get(name).is_some() => {
                self.elicit(name, &arguments, &context).await?
            }
            "test_trigger_tool_change" => {
                self.change_the_packs().await;
                text("The packs changed.")
            }
            "test_trigger_prompt_change" => {
                self.prompts_changed.send_replace(());
                text("Said that the prompts changed.")
            }
            _ => {
                return Err(ErrorData::invalid_params(
                    format!("Unknown tool: {name}"),
                    None,
                ));
            }
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(read(
            &self.data["resources"],
        )))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(read(
            &self.data["templates"],
        )))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = &request.uri;
        let id = uri
            .strip_prefix("test://template/")
            .and_then(|rest| rest.strip_suffix("/data"));
        let mut contents = match (self.data["contents"].get(uri), id) {
            (Some(contents), _) => contents.clone(),
            (None, Some(id)) => {
                let data =
                    json!({"id": id, "templateTest": true, "data": format!("Data for ID: {id}")});
                json!({"mimeType": "application/json", "text": data.to_string()})
            }
            (None, None) => return Err(not_found(uri)),
        };
        contents["uri"] = json!(uri);
        Ok(ReadResourceResult::new(vec![read(&contents)]).into())
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.known_resource(&request.uri)?;
        self.subscribed.lock().unwrap().insert(request.uri);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let known = self.subscribed.lock().unwrap().remove(&request.uri);
        known.then_some(()).ok_or_else(|| not_found(&request.uri))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = SubscriptionFilter::new();
        accepted.prompts_list_changed = requested.prompts_list_changed;
        self.listeners
            .lock()
            .unwrap()
            .push_back(self.prompts_changed.subscribe());
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.listeners.lock().unwrap().pop_front().unwrap();
        let wanted = context.accepted().prompts_list_changed == Some(true);
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => match changed {
                    Ok(()) if wanted => context.sink().notify_prompt_list_changed().await.map_err(|error| {
                        ErrorData::internal_error(error.to_string(), None)
                    })?,
                    Ok(()) => {}
                    Err(_) => return Ok(()),
                },
            }
        }
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(read(
            &self.data["prompts"],
        )))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = request.name.as_str();
        if self.data["rounds"].get(name).is_some() {
            let (responses, state) = (
                request.input_responses.as_ref(),
                request.request_state.as_deref(),
            );
            return Ok(match self.round(name, responses, state, &context)? {
                Round::Ask(result) => result.into(),
                Round::Done(responses) => {
                    let said = format!(
                        "Use this context: {}",
                        responses["user_context"]["content"]["context"]
                    );
                    let message =
                        json!({"role": "user", "content": {"type": "text", "text": said}});
                    GetPromptResult::new(vec![read(&message)]).into()
                }
            });
        }
        let messages = self.data["messages"].get(name);
        let messages = messages
            .ok_or_else(|| ErrorData::invalid_params(format!("Unknown prompt: {name}"), None))?;
        let mut messages = messages.to_string();
        for (argument, value) in request.arguments.iter().flatten() {
            let quoted = json!(value.as_str().unwrap_or_default()).to_string();
            messages = messages.replace(&format!("{{{argument}}}"), quoted.trim_matches('"'));
        }
        Ok(GetPromptResult::new(serde_json::from_str(&messages).unwrap()).into())
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        if !matches!(&request.r#ref, Reference::Prompt(prompt) if prompt.name == "test_prompt_with_arguments")
        {
            return Err(ErrorData::invalid_params("nothing to complete there", None));
        }
        let values = ["paris", "park", "party", "test"]
            .iter()
            .filter(|value| value.starts_with(&request.argument.value));
        let values =
            CompletionInfo::with_all_values(values.map(|value| (*value).to_owned()).collect());
        Ok(CompleteResult::new(
            values.map_err(|error| ErrorData::internal_error(error, None))?,
        ))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.log_level.lock().unwrap() = request.level;
        Ok(())
    }
}
