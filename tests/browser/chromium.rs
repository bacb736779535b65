//! Chromium, driven by the `DevTools` protocol over a pipe: no driver, no other crate.
//!
//! One browser has many tabs. Each tab has its own cookies, unless it is opened beside another one.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::STUCK;

/// A running Chromium; it ends when its pipe is closed.
pub(super) struct Browser {
    wire: RefCell<Wire>,
    child: Child,
    _profile: tempfile::TempDir,
}

/// The two ends of the pipe, and what came unasked.
struct Wire {
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    sent: u64,
    events: Vec<Value>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.wire.borrow_mut().to = None;
        let start = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none())
            && start.elapsed() < Duration::from_secs(5)
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        // Fails only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    pub(super) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with more arguments.
    pub(super) fn start_with(arguments: &[&str]) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("timeout");
        // The protocol is on the descriptors 3 and 4.
        command
            .arg((STUCK.as_secs() * 5).to_string())
            .args(["sh", "-c"]);
        command
            .arg("exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>\"$0/log\"")
            .arg(profile.path());
        command.args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-gpu-watchdog",
            "--disable-hang-monitor",
            "--disable-dev-shm-usage",
            "--no-first-run",
        ]);
        command.args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]);
        command.args([
            "--disable-extensions",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--lang=en",
        ]);
        command
            .args(arguments)
            .args(["--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()));
        command
            .env("HOME", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (
            child.stdin.take(),
            BufReader::new(child.stdout.take().unwrap()),
        );
        let browser = Self {
            wire: RefCell::new(Wire {
                to,
                from,
                sent: 0,
                events: Vec::new(),
            }),
            child,
            _profile: profile,
        };
        browser.call(None, "Browser.getVersion", json!({}));
        browser
    }

    /// Opens a tab without cookies.
    pub(super) fn tab(&self) -> Tab<'_> {
        let context =
            self.call(None, "Target.createBrowserContext", json!({}))["browserContextId"].clone();
        self.tab_in(context)
    }

    fn tab_in(&self, context: Value) -> Tab<'_> {
        let open = json!({ "url": "about:blank", "browserContextId": context });
        let target = self.call(None, "Target.createTarget", open)["targetId"].clone();
        let session = self.call(
            None,
            "Target.attachToTarget",
            json!({ "targetId": target, "flatten": true }),
        );
        let session = session["sessionId"].as_str().unwrap().to_owned();
        let tab = Tab {
            browser: self,
            session,
            target,
            context,
        };
        for domain in ["Page", "Runtime", "Log", "Network", "Audits"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.call("Page.setLifecycleEventsEnabled", json!({ "enabled": true }));
        tab.size(1400, 900);
        tab
    }

    #[track_caller]
    fn call(&self, session: Option<&str>, method: &str, parameters: Value) -> Value {
        self.try_call(session, method, parameters)
            .unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    fn try_call(
        &self,
        session: Option<&str>,
        method: &str,
        parameters: Value,
    ) -> Result<Value, Value> {
        let wire = &mut *self.wire.borrow_mut();
        let id = wire.send(session, method, parameters);
        loop {
            let mut came = wire.next();
            if came["id"] != id {
                wire.events.push(came);
                continue;
            }
            return if came["error"].is_null() {
                Ok(came["result"].take())
            } else {
                Err(came["error"].take())
            };
        }
    }
}

impl Wire {
    /// Sends a message and returns its id.
    fn send(&mut self, session: Option<&str>, method: &str, parameters: Value) -> u64 {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": method, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let to = self.to.as_mut().unwrap();
        to.write_all(format!("{message}\0").as_bytes())
            .and_then(|()| to.flush())
            .unwrap();
        self.sent
    }

    fn next(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert_eq!(
            message.pop(),
            Some(0),
            "chromium, which tests/run installs, has ended"
        );
        serde_json::from_slice(&message).unwrap()
    }
}

/// A tab of the browser.
pub(super) struct Tab<'a> {
    browser: &'a Browser,
    session: String,
    target: Value,
    context: Value,
}

impl Drop for Tab<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let close = json!({ "targetId": self.target });
            let _ = self.browser.try_call(None, "Target.closeTarget", close);
        }
    }
}

impl Tab<'_> {
    /// Opens another tab with the same cookies.
    pub(super) fn beside(&self) -> Self {
        self.browser.tab_in(self.context.clone())
    }

    /// Calls a method of the protocol.
    #[track_caller]
    pub(super) fn call(&self, method: &str, parameters: Value) -> Value {
        self.browser.call(Some(&self.session), method, parameters)
    }

    /// Waits for an event of this tab that came since the last look, or comes.
    fn event(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let wire = &mut *self.browser.wire.borrow_mut();
        let mut at = 0;
        loop {
            if at == wire.events.len() {
                let came = wire.next();
                wire.events.push(came);
            }
            if wire.events[at]["sessionId"] == self.session.as_str() && wanted(&wire.events[at]) {
                return wire.events.remove(at);
            }
            at += 1;
        }
    }

    /// Goes to an address and waits until the page is loaded. Returns the status of the page.
    #[track_caller]
    pub(super) fn open(&self, url: &str) -> u16 {
        self.try_open(url)
            .unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// Goes to an address and waits until the page is loaded.
    ///
    /// # Errors
    /// Why no page came: for example a download.
    pub(super) fn try_open(&self, url: &str) -> Result<u16, String> {
        self.forget_events();
        let came = self.call("Page.navigate", json!({ "url": url }));
        if let Some(error) = came["errorText"].as_str() {
            return Err(error.to_owned());
        }
        Ok(self.loaded(&came["loaderId"]))
    }

    /// Does what leads to another page, and waits until that is loaded. Returns its status.
    pub(super) fn leads(&self, action: impl FnOnce(&Self)) -> u16 {
        self.forget_events();
        action(self);
        let begun = self.event(|event| {
            event["method"] == "Page.frameNavigated"
                && event["params"]["frame"]["parentId"].is_null()
        });
        self.loaded(&begun["params"]["frame"]["loaderId"])
    }

    fn loaded(&self, loader: &Value) -> u16 {
        // A page that a person went to within the same document has no loader.
        if loader.is_null() {
            return 200;
        }
        self.event(|event| {
            let of = &event["params"];
            event["method"] == "Page.lifecycleEvent"
                && of["name"] == "load"
                && of["loaderId"] == *loader
        });
        let answer = self.event(|event| {
            event["method"] == "Network.responseReceived"
                && event["params"]["type"] == "Document"
                && event["params"]["loaderId"] == *loader
        });
        u16::try_from(answer["params"]["response"]["status"].as_u64().unwrap()).unwrap()
    }

    fn forget_events(&self) {
        self.browser
            .wire
            .borrow_mut()
            .events
            .retain(|event| event["sessionId"] != self.session.as_str());
    }

    /// Evaluates an expression in the page, waits for its promise, and returns its value.
    #[track_caller]
    pub(super) fn eval(&self, expression: &str) -> Value {
        let ask = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let came = self.call("Runtime.evaluate", ask);
        assert!(
            came["exceptionDetails"].is_null(),
            "{expression}: {}",
            came["exceptionDetails"]
        );
        came["result"]["value"].clone()
    }

    /// Evaluates an expression that is a text.
    #[track_caller]
    pub(super) fn text(&self, expression: &str) -> String {
        self.eval(expression)
            .as_str()
            .unwrap_or_else(|| panic!("{expression}: no text"))
            .to_owned()
    }

    /// Returns what the browser complained of since the page was opened: its console, refused loads
    /// and scripts.
    pub(super) fn complaints(&self) -> Vec<String> {
        // What is on its way comes before the answer to the next call.
        let page = self.text("new Promise(done => setTimeout(() => done(location.href), 0))");
        let wire = self.browser.wire.borrow();
        let own = wire
            .events
            .iter()
            .filter(|event| event["sessionId"] == self.session.as_str());
        own.filter_map(|event| {
            let of = &event["params"];
            match event["method"].as_str()? {
                "Runtime.consoleAPICalled" => Some(format!("console: {}", of["args"])),
                "Runtime.exceptionThrown" => Some(format!("exception: {}", of["exceptionDetails"])),
                // The status of a page is the test's business.
                "Log.entryAdded"
                    if of["entry"]["text"]
                        .as_str()?
                        .starts_with("Failed to load resource") =>
                {
                    let loaded = of["entry"]["url"].as_str()?;
                    (page != loaded).then(|| format!("not loaded: {loaded}"))
                }
                "Log.entryAdded" => Some(format!("log: {}", of["entry"]["text"])),
                // Hints about forms and the history, which are no failures.
                "Audits.issueAdded" if of["issue"]["code"] == "GenericIssue" => None,
                "Audits.issueAdded" => Some(format!("issue: {}", of["issue"])),
                "Page.javascriptDialogOpening" => Some(format!("dialog: {}", of["message"])),
                _ => None,
            }
        })
        .collect()
    }

    /// Sets the size of the window in CSS pixels.
    pub(super) fn size(&self, width: u32, height: u32) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Sets what the person's system asks for.
    pub(super) fn prefers(&self, scheme: &str, motion: &str) {
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": motion },
        ]);
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        );
    }

    /// Switches the scripts of pages on or off.
    pub(super) fn scripts(&self, on: bool) {
        self.call(
            "Emulation.setScriptExecutionDisabled",
            json!({ "value": !on }),
        );
    }

    /// Presses a key: `Tab`, `Enter`, ` `, or a character.
    pub(super) fn press(&self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            other => (other.chars().next().map_or(0, u32::from), other),
        };
        let down = if text.is_empty() {
            "rawKeyDown"
        } else {
            "keyDown"
        };
        for kind in [down, "keyUp"] {
            let event = json!({
                "type": kind, "key": key, "windowsVirtualKeyCode": code,
                "text": if kind == "keyUp" { "" } else { text },
            });
            if kind == "keyUp" {
                // Nothing waits for it: what a key does it does on its way down.
                self.browser.wire.borrow_mut().send(
                    Some(&self.session),
                    "Input.dispatchKeyEvent",
                    event,
                );
            } else {
                self.call("Input.dispatchKeyEvent", event);
            }
        }
    }

    /// Types a text where the focus is.
    pub(super) fn type_text(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Writes a picture of the whole page.
    pub(super) fn picture(&self, file: &Path) {
        let size = &self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"];
        let height = size["height"].as_f64().unwrap_or_default().min(4000.0);
        let clip = json!({ "x": 0, "y": 0, "width": size["width"], "height": height, "scale": 1 });
        let wanted =
            json!({ "format": "webp", "quality": 60, "captureBeyondViewport": true, "clip": clip });
        let came = self.call("Page.captureScreenshot", wanted);
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(came["data"].as_str().unwrap())
            .unwrap();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, bytes).unwrap();
    }
}
