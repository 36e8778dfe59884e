//! A headless Chromium, spoken to over two pipes: messages are JSON with a zero byte after each.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// What it may be called.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// A browser that says nothing for so long never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// The name of one that is installed.
pub fn find() -> Option<&'static str> {
    let there = |name: &&str| {
        Command::new(name).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    };
    NAMES.into_iter().find(there)
}

/// A browser with one page.
pub struct Browser {
    process: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    sent: u64,
    /// What happened meanwhile.
    pub events: Vec<Value>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts it.
    pub fn start(name: &str) -> Self {
        let profile = tempfile::tempdir().unwrap();
        // The browser reads from descriptor 3 and writes to 4: the shell puts our two pipes there.
        let mut process = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", name, "--remote-debugging-pipe"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
            ])
            .args(["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, out) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let (send, from) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            let mut message = Vec::new();
            while out.read_until(0, &mut message).is_ok_and(|n| n > 0) {
                message.pop();
                if send.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Self { process, to, from, session: None, sent: 0, events: Vec::new(), _profile: profile };
        let target = browser.ask("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let session = browser.ask("Target.attachToTarget", json!({"targetId": target, "flatten": true}))["sessionId"].clone();
        browser.session = session.as_str().map(String::from);
        for domain in ["Page", "Runtime", "Network", "Log"] {
            browser.ask(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn next(&mut self) -> Value {
        self.from.recv_timeout(PATIENCE).expect("the browser says nothing any more")
    }

    /// Asks for something and waits for the answer.
    pub fn ask(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let answer = self.next();
            if answer["id"] == json!(self.sent) {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Opens a file and waits until it is loaded.
    pub fn open(&mut self, path: &Path) {
        self.events.clear();
        self.ask("Page.navigate", json!({"url": format!("file://{}", path.display())}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next();
            self.events.push(event);
        }
    }

    /// Sets the size of the window.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600});
        self.ask("Emulation.setDeviceMetricsOverride", size);
    }

    /// What an expression is.
    pub fn value(&mut self, expression: &str) -> Value {
        let answer = self.ask("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until what was asked for is to be seen.
    pub fn settle(&mut self) {
        let frames = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))";
        self.ask("Runtime.evaluate", json!({"expression": frames, "awaitPromise": true}));
    }

    /// Moves the mouse.
    pub fn point(&mut self, x: f64, y: f64) {
        self.ask("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y}));
    }

    /// Presses a key.
    pub fn press(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.ask("Input.dispatchKeyEvent", json!({"type": kind, "key": key, "code": key}));
        }
    }

    /// A picture of the whole page.
    pub fn picture(&mut self, path: &Path) {
        let size = self.value("({width: innerWidth, height: document.documentElement.scrollHeight})");
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        self.capture(path, json!({"captureBeyondViewport": true, "clip": clip}));
    }

    /// A picture of what is in the window.
    pub fn window(&mut self, path: &Path) {
        self.capture(path, json!({}));
    }

    fn capture(&mut self, path: &Path, what: Value) {
        let answer = self.ask("Page.captureScreenshot", what);
        std::fs::write(path, decode(answer["data"].as_str().unwrap())).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Base 64.
fn decode(text: &str) -> Vec<u8> {
    let six = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> = text.bytes().filter(|c| *c != b'=').map(|c| u32::from(six(c))).collect();
    let mut bytes = Vec::new();
    for four in digits.chunks(4) {
        let all = (0..4).fold(0, |sum, i| sum << 6 | four.get(i).copied().unwrap_or(0));
        bytes.extend_from_slice(&all.to_be_bytes()[1..four.len()]);
    }
    bytes
}
