//! Stored form of a call that waits for any process: sealed with the memory key, for one job of one
//! caller.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use helmdeck_core::numbers::micros;
use helmdeck_core::trace::Trace;
use helmdeck_core::{Call, Correlation, Directive, Identity, PackName, RequestId, Version, hex};
use helmdeck_memory::framing::Framed;
use helmdeck_memory::{DeletePosition, KeyRing, Namespace};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Job, JobId};

/// Purpose of the seal of calls.
const PURPOSE: &str = "job-call";
/// Bytes of a label.
const LABEL: usize = 16;

/// A call without its input. Its caller is in the row, and bound by the seal.
#[derive(Serialize, Deserialize)]
struct CallHead {
    pack: PackName,
    version: Version,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    session: Option<String>,
    directive: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    behind: bool,
    /// After the deletes that the process applied that accepted it. The one that runs it has to
    /// apply them as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    position: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_age_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_stale_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min_fresh_us: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    administrator: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stale_if_error_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

/// Returns what a process needs to run a call: the key that sealed it, and the pack in a version
/// with its contract.
pub(super) fn label(key: &str, pack: &PackName, version: Version, contract: &[u8; 32]) -> String {
    let parts = Framed::new("helmdeck/job/label")
        .text(key)
        .text(pack.as_str());
    let parts = parts.bytes(&version.number().to_be_bytes()).bytes(contract);
    hex(&Sha256::digest(parts.as_slice())[..LABEL])
}

/// A call that was opened.
pub(super) struct OpenedCall {
    pub(super) call: Call,
    /// Position that the process has to catch up with.
    pub(super) position: Option<DeletePosition>,
}

/// Encodes a call: a line of JSON, then its input byte for byte.
pub(super) fn write(call: &Call, version: Version, position: Option<&DeletePosition>) -> Vec<u8> {
    let (request, trace) = (&call.correlation.request_id, &call.correlation.trace);
    let head = CallHead {
        pack: call.pack.clone(),
        version,
        session: call.identity.session().map(str::to_owned),
        directive: call.directive.as_str().to_owned(),
        behind: call.behind,
        position: position.map(ToString::to_string),
        max_age_us: call.max_age.map(micros),
        max_stale_us: call.max_stale.map(micros),
        min_fresh_us: call.min_fresh.map(micros),
        administrator: call.administrator,
        stale_if_error_us: call.stale_if_error.map(micros),
        request_id: request.as_ref().map(ToString::to_string),
        traceparent: trace.as_ref().map(|trace| trace.context().to_string()),
        tracestate: trace
            .as_ref()
            .and_then(|trace| trace.state().map(str::to_owned)),
    };
    // Plain data: writing it to memory cannot fail.
    let mut bytes = serde_json::to_vec(&head).unwrap_or_default();
    bytes.push(b'\n');
    bytes.extend_from_slice(&call.input);
    bytes
}

/// Seals an encoded call for a job of a caller.
pub(super) fn seal(
    ring: &KeyRing,
    identity: &Identity,
    id: &JobId,
    plain: &[u8],
) -> Option<Vec<u8>> {
    ring.seal_blob(
        &Namespace::of_caller(identity),
        PURPOSE,
        id.as_str().as_bytes(),
        plain,
    )
    .ok()
}

/// Opens the call of a job; `None` if it was sealed for another job or caller, or with an unknown
/// key.
pub(super) fn open(ring: &KeyRing, job: &Job, sealed: &[u8]) -> Option<OpenedCall> {
    let namespace = Namespace::new(&job.tenant, &job.user, None);
    read(
        job,
        ring.open_blob(&namespace, PURPOSE, job.id.as_str().as_bytes(), sealed)
            .ok()?,
    )
}

fn read(job: &Job, bytes: Vec<u8>) -> Option<OpenedCall> {
    let bytes = Bytes::from(bytes);
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let head: CallHead = serde_json::from_slice(&bytes[..end]).ok()?;
    if (&head.pack, head.version) != (&job.pack, job.version) {
        return None;
    }
    let identity = Identity::new(&job.tenant, &job.user).ok()?;
    let identity = match &head.session {
        Some(session) => identity.with_session(session).ok()?,
        None => identity,
    };
    let mut call = Call::new(head.pack, bytes.slice(end + 1..), Arc::new(identity));
    call.version = Some(head.version);
    call.directive = [
        Directive::Default,
        Directive::Bypass,
        Directive::Refresh,
        Directive::OnlyIfCached,
    ]
    .into_iter()
    .find(|directive| directive.as_str() == head.directive)?;
    let position = head.position.as_deref().map(str::parse);
    call.behind = head.behind || matches!(position, Some(Err(_)));
    call.max_age = head.max_age_us.map(Duration::from_micros);
    call.max_stale = head.max_stale_us.map(Duration::from_micros);
    call.min_fresh = head.min_fresh_us.map(Duration::from_micros);
    call.administrator = head.administrator;
    call.stale_if_error = head.stale_if_error_us.map(Duration::from_micros);
    call.correlation = Correlation {
        request_id: head
            .request_id
            .and_then(|id| RequestId::given(id.as_bytes())),
        trace: head
            .traceparent
            .and_then(|parent| Trace::received(&parent, head.tracestate.as_deref())),
    };
    Some(OpenedCall {
        call,
        position: position.and_then(Result::ok),
    })
}

#[cfg(test)]
mod tests {
    use helmdeck_core::Timestamp;
    use helmdeck_memory::MemoryKey;

    use super::super::JobState;
    use super::*;

    fn ring() -> KeyRing {
        KeyRing::parse(("KEY", MemoryKey::generate().unwrap().expose()), None).unwrap()
    }

    fn job(user: &str) -> Job {
        Job {
            id: JobId::next(Timestamp(1_000_000)),
            pack: PackName::new("t.work").unwrap(),
            version: Version::new(3).unwrap(),
            tenant: "t".to_owned(),
            user: user.to_owned(),
            state: JobState::Queued,
            progress: None,
            created_at: Timestamp(1),
            started_at: None,
            ended_at: None,
            expires_at: Timestamp(2),
            error: None,
            has_result: false,
            artifacts: Vec::new(),
            attempt: None,
            schedule: None,
            revision: 1,
        }
    }

    #[test]
    fn sealed_call_opens_for_its_job_only() {
        let (ring, alice) = (ring(), job("alice"));
        let identity = Arc::new(
            Identity::new("t", "alice")
                .unwrap()
                .with_session("s")
                .unwrap(),
        );
        let mut call = Call::new(alice.pack.clone(), "{\"a\": 1}\n", Arc::clone(&identity));
        (call.directive, call.behind) = (Directive::Refresh, true);
        let position: DeletePosition = "p3-1-1-5-7-00112233445566778899aabbccddeeff"
            .parse()
            .unwrap();
        (call.max_age, call.max_stale) = (Some(Duration::from_secs(3)), Some(Duration::ZERO));
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        call.correlation = Correlation {
            request_id: RequestId::given(b"request-1"),
            trace: Trace::received(parent, Some("rojo=1")),
        };
        let sealed = seal(
            &ring,
            &identity,
            &alice.id,
            &write(&call, alice.version, Some(&position)),
        )
        .unwrap();
        assert!(!sealed.windows(9).any(|window| window == b"request-1"));
        let OpenedCall {
            call: read,
            position: after,
        } = open(&ring, &alice, &sealed).unwrap();
        assert_eq!((read.behind, after), (true, Some(position)));
        assert_eq!(
            (&read.input, read.version, &read.identity),
            (&call.input, Some(alice.version), &identity)
        );
        assert_eq!(
            (read.directive, read.max_age, read.max_stale),
            (call.directive, call.max_age, call.max_stale)
        );
        let trace = read.correlation.trace.unwrap();
        assert_eq!(
            (trace.context().to_string().as_str(), trace.state()),
            (parent, Some("rojo=1"))
        );
        assert_eq!(
            read.correlation.request_id.unwrap().to_string(),
            "request-1"
        );

        let swapped = Job {
            id: JobId::next(Timestamp(5_000_000)),
            ..alice.clone()
        };
        let other_pack = Job {
            pack: PackName::new("t.other").unwrap(),
            ..alice.clone()
        };
        let other_version = Job {
            version: Version::new(4).unwrap(),
            ..alice.clone()
        };
        for wrong in [
            swapped,
            other_pack,
            other_version,
            Job {
                user: "bob".to_owned(),
                ..alice.clone()
            },
        ] {
            assert!(open(&ring, &wrong, &sealed).is_none(), "{wrong:?}");
        }
        assert!(
            open(&self::ring(), &alice, &sealed).is_none(),
            "another key"
        );
        let result = ring.seal_blob(
            &Namespace::of_caller(&identity),
            "job",
            alice.id.as_str().as_bytes(),
            b"{}\n",
        );
        assert!(
            open(&ring, &alice, &result.unwrap()).is_none(),
            "a result is no call"
        );
    }

    #[test]
    fn labels_differ_by_key_pack_version_and_contract() {
        let (pack, other) = (PackName::new("t.a").unwrap(), PackName::new("t.b").unwrap());
        let (one, two) = (Version::new(1).unwrap(), Version::new(2).unwrap());
        let labels = [
            label("k", &pack, one, &[1; 32]),
            label("l", &pack, one, &[1; 32]),
            label("k", &other, one, &[1; 32]),
            label("k", &pack, two, &[1; 32]),
            label("k", &pack, one, &[2; 32]),
        ];
        let distinct: std::collections::BTreeSet<_> = labels.iter().collect();
        assert_eq!((distinct.len(), labels[0].len()), (5, 32));
        assert_eq!(label("k", &pack, one, &[1; 32]), labels[0]);
    }
}
