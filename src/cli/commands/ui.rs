//! `helmdeck ui`: prints where the pages are, with a link that signs a browser in once if callers
//! need tokens.

use helmdeck_core::{Clock, Identity, SystemClock};
use helmdeck_system::tokens::{LINK, LINK_LIVES, NewToken};
use serde_json::json;

use crate::args::UiArgs;
use crate::exit::{Failure, Result};
use crate::running;
use crate::wire::Setup;

/// Prints the address of the pages. Opens nothing.
///
/// The token of a link is in its fragment, which a browser sends to no server, and so no log has
/// it.
///
/// # Errors
/// A usage failure for an invalid caller or URL; a failure if the system database cannot be
/// reached.
pub(crate) async fn run(setup: &Setup, arguments: &UiArgs) -> Result<()> {
    let base = match &arguments.url {
        Some(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
            url.origin().ascii_serialization()
        }
        Some(url) => {
            return Err(Failure::usage(format!(
                "{url} is not http://host or https://host"
            )));
        }
        None => format!("http://{}", running::address(&setup.settings)),
    };
    if !setup.authenticates()? {
        let address = format!("{base}/ui");
        return setup
            .output
            .either(&json!({"url": address, "signs_in": false}), || {
                address.clone()
            });
    }
    let identity = Identity::new(&arguments.tenant, &arguments.user).map_err(Failure::usage)?;
    let now = SystemClock::default().now();
    let link = NewToken {
        name: "link".to_owned(),
        tenant: identity.tenant().to_owned(),
        subject: identity.user().to_owned(),
        scope: format!("{} {LINK}", arguments.scope.to_scope()),
        created_at: now,
        expires_at: Some(now.saturating_add(LINK_LIVES)),
        ancestors: Vec::new(),
    };
    let (_, token) = setup.system()?.create_token(link).await?;
    let address = format!("{base}/ui/sign-in#{}", token.expose());
    let seconds = LINK_LIVES.as_secs();
    setup.output.note(&format!(
        "signs a browser in as {}/{}, scope {:?}, once and within {seconds} s",
        arguments.tenant,
        arguments.user,
        arguments.scope.to_scope()
    ));
    setup.output.either(
        &json!({"url": address, "signs_in": true, "seconds": seconds}),
        || address.clone(),
    )
}
