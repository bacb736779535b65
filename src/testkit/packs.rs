//! Built-in packs from closures.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use helmdeck_core::{
    Builtin, Call, Context, Handler, Identity, Json, Need, PackName, Reply, Result,
};

/// Counter of the runs of a handler.
#[derive(Debug, Clone, Default)]
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Returns the number of runs so far.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

struct Function<F> {
    run: F,
    counted: Counted,
}

#[async_trait]
impl<F, R> Handler for Function<F>
where
    F: Fn(Context, Json) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Reply>> + Send + 'static,
{
    async fn run(&self, context: Context, input: Json) -> Result<Reply> {
        self.counted.0.fetch_add(1, Ordering::SeqCst);
        (self.run)(context, input).await
    }
}

/// Makes a built-in pack from a manifest and a closure, and counts its runs.
///
/// The manifest is leaked until the process ends: tests make few.
pub fn function<F, R>(manifest: &str, run: F) -> (Builtin, Counted)
where
    F: Fn(Context, Json) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Reply>> + Send + 'static,
{
    let counted = Counted::default();
    let handler = Arc::new(Function {
        run,
        counted: counted.clone(),
    });
    let manifest: &'static str = Box::leak(manifest.to_owned().into_boxed_str());
    (
        Builtin {
            file: "test.toml",
            schemas: "",
            manifest,
            handler,
            need: Need::Nothing,
        },
        counted,
    )
}

/// Returns a manifest: `top` goes before the first table, `rest` into and after it.
///
/// The pack has 10 minutes, unless `rest` begins with another `timeout`.
#[must_use]
pub fn manifest(name: &str, top: &str, rest: &str) -> String {
    let timeout = if rest.starts_with("timeout = ") {
        ""
    } else {
        "timeout = \"10m\"\n"
    };
    format!(
        "name = \"{name}\"\nversion = \"v1\"\ndescription = \"test\"\n{top}\n\
         [handler]\nbuiltin = \"{name}\"\n{timeout}{rest}\n"
    )
}

/// Makes a call of the local caller.
///
/// # Panics
/// If the name is not a pack name.
#[must_use]
#[allow(clippy::expect_used, reason = "a test with a bad name is a bad test")]
pub fn call(pack: &str, input: &str) -> Call {
    Call::new(
        PackName::new(pack).expect("a pack name"),
        input.to_owned(),
        Arc::new(Identity::local()),
    )
}
