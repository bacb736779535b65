//! Artifacts for a home: an engine beside the program writes them, as a pack of Rust does.

use std::sync::Arc;

use helmdeck_core::{Call, Identity, Json, PackName, Reply};
use helmdeck_engine::{Config, Engine};
use helmdeck_testkit::{function, manifest};

use crate::support::program::Home;

/// Writes a page of HTML as an artifact of the local caller.
pub(super) fn write(home: &Home, name: &'static str, text: &str) {
    let html = format!("<script>hit()</script>{text}");
    let (pack, _) = function(&manifest("t.files", "", ""), move |cx, _| {
        let html = html.clone();
        async move {
            cx.put_artifact(name, "text/html; charset=utf-8", html)
                .await?;
            Ok(Reply::json(Json::parse("{}".to_owned()).unwrap()))
        }
    });
    let builder = Engine::builder(Config::default())
        .builtins(vec![pack])
        .artifacts(home.data().join("artifacts"));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let identity = Arc::new(Identity::new("local", "local").unwrap());
        builder
            .build()
            .call(Call::new(PackName::new("t.files").unwrap(), "{}", identity))
            .await
            .unwrap();
    });
}
