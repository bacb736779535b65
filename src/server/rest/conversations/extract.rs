//! The conversation that a request names, as an argument of its handler.

use axum::extract::{FromRef, FromRequestParts};
use helmdeck_conversation::{ConversationMemory, Identity};
use helmdeck_core::memory::NoMemory;
use helmdeck_core::{Caller, Error, Permission};
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::access::{By, need};
use crate::problem::Problem;
use crate::rest::request::{Params, PathValues, segment};
use crate::rest::state::ConversationState;

/// The path parameter of all routes of one conversation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(
    dead_code,
    reason = "it describes the parameter; `Conversation` reads it"
)]
pub(super) struct ConversationInfo {
    /// The conversation, 1 to 256 bytes
    session: String,
}

/// Owner of the conversation: the caller, unless the query names another one.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Owner {
    /// The tenant; the caller's own by default. Another one needs the scope `admin`
    tenant: Option<String>,
    /// The user; the caller itself by default. Another one needs the scope `admin`
    user: Option<String>,
}

/// Query parameters that may name the owner of a conversation.
pub(super) trait NamesOwner {
    /// Returns the tenant and the user.
    fn owner(&self) -> (Option<&str>, Option<&str>);
}

impl NamesOwner for Owner {
    fn owner(&self) -> (Option<&str>, Option<&str>) {
        (self.tenant.as_deref(), self.user.as_deref())
    }
}

/// A conversation that the caller may read, or change by any method but `GET`.
///
/// A conversation of another user also needs the scope `admin`.
pub(super) struct Conversation<Q = Owner> {
    pub(super) memory: ConversationMemory,
    pub(super) identity: Identity,
    /// Whether it belongs to another caller; the caller is then an administrator.
    pub(super) foreign: bool,
    pub(super) query: Q,
    pub(super) caller: Caller,
    pub(super) state: ConversationState,
}

impl<S, Q> FromRequestParts<S> for Conversation<Q>
where
    S: Send + Sync,
    Q: DeserializeOwned + NamesOwner,
    ConversationState: FromRef<S>,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let By(caller) = By::from_request_parts(parts, state).await?;
        let path = PathValues::from_request_parts(parts, state).await?;
        let query = Params::<Q>::of(parts).read()?;
        let permission = if parts.method.is_safe() {
            Permission::MemoryRead
        } else {
            Permission::MemoryWrite
        };
        let state = ConversationState::from_ref(state);
        let memory = memory(&state, &caller, &permission)?.clone();
        let own = (caller.identity.tenant(), caller.identity.user());
        let (tenant, user) = query.owner();
        let named = (tenant.unwrap_or(own.0), user.unwrap_or(own.1));
        let foreign = named != own;
        if foreign {
            need(&caller, &Permission::Admin)?;
        }
        let identity = Identity::new(named.0, named.1, path.value("session"));
        Ok(Self {
            memory,
            identity,
            foreign,
            query,
            caller,
            state,
        })
    }
}

impl<Q> Conversation<Q> {
    /// Waits for the memory, at most until the deadline of a request.
    pub(super) async fn in_time<T, E>(
        &self,
        answer: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Problem>
    where
        Problem: From<E>,
    {
        Ok(self.state.limits.in_time(answer).await??)
    }

    /// Returns the address of one of its turns.
    pub(super) fn address(&self, turn: &str) -> String {
        let Identity {
            tenant,
            user,
            session,
            ..
        } = &self.identity;
        let mut address = format!("/api/v1/conversations/{}/turns/{turn}", segment(session));
        if self.foreign {
            address.push_str(&format!(
                "?tenant={}&user={}",
                segment(tenant),
                segment(user)
            ));
        }
        address
    }
}

/// Returns the memory, for a caller with this permission.
pub(super) fn memory<'a>(
    state: &'a ConversationState,
    caller: &Caller,
    permission: &Permission,
) -> Result<&'a ConversationMemory, Problem> {
    need(caller, permission)?;
    let memory = state.conversations.get()?;
    if caller.identity.is_anonymous() {
        // All callers without a token are one, and their conversations are private to each client.
        return Err(Error::from(NoMemory::Anonymous).into());
    }
    Ok(memory)
}
