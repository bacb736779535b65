//! The addresses of resources: `helmdeck://packs`, `helmdeck://artifacts/<key>` and so on.

use std::borrow::Cow;

use helmdeck_core::text::is_percent_encoded;
use helmdeck_engine::JobId;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

pub(crate) const SCHEME: &str = "helmdeck://";
pub(crate) const PACKS: &str = "helmdeck://packs";
pub(crate) const MEMORY: &str = "helmdeck://memory";
pub(crate) const GUIDE: &str = "helmdeck://guide";
pub(crate) const JOBS: &str = "helmdeck://jobs";
pub(crate) const PLANS: &str = "helmdeck://seam/plans";
pub(crate) const RECALL: &str = "helmdeck://seam/recall";

/// A parsed address.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ResourceUri<'a> {
    /// All packs.
    Packs,
    /// One pack, by its name.
    Pack(Cow<'a, str>),
    /// Facts about the caller.
    Memory,
    /// Advice on which pack to use for what.
    Guide,
    /// The caller's jobs.
    Jobs,
    /// One job with its result, by its id.
    Job(Cow<'a, str>),
    /// A file of a run, by its key.
    Artifact(Cow<'a, str>),
    /// The plans of the project.
    Plans,
    /// Project memory for a phase.
    Recall(Cow<'a, str>),
}

/// Returns the address of a file of a run.
pub(crate) fn artifact(key: &str) -> String {
    format!("{SCHEME}artifacts/{}", encode(key))
}

/// Returns the address of a pack.
pub(crate) fn pack(name: &str) -> String {
    format!("{PACKS}/{}", encode(name))
}

/// Returns the address of a job.
pub(crate) fn job(id: &JobId) -> String {
    format!("{JOBS}/{id}")
}

/// Parses an address, `None` if it is not ours.
pub(crate) fn parse(uri: &str) -> Option<ResourceUri<'_>> {
    let path = uri.strip_prefix(SCHEME)?;
    Some(match path.split_once('/') {
        None => match path {
            "packs" => ResourceUri::Packs,
            "memory" => ResourceUri::Memory,
            "guide" => ResourceUri::Guide,
            "jobs" => ResourceUri::Jobs,
            _ => return None,
        },
        Some(("packs", name)) if !name.is_empty() => ResourceUri::Pack(decode(name)?),
        Some(("jobs", id)) if !id.is_empty() => ResourceUri::Job(decode(id)?),
        Some(("artifacts", key)) if !key.is_empty() => ResourceUri::Artifact(decode(key)?),
        Some(("seam", "plans")) => ResourceUri::Plans,
        Some(("seam", "recall")) => ResourceUri::Recall(Cow::Borrowed("work")),
        Some(("seam", path)) => ResourceUri::Recall(decode(
            path.strip_prefix("recall/")
                .filter(|phase| !phase.is_empty())?,
        )?),
        Some(_) => return None,
    })
}

/// Characters that are not escaped in a path: unreserved ones (RFC 3986, section 2.3) and slashes.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, UNRESERVED).to_string()
}

fn decode(text: &str) -> Option<Cow<'_, str>> {
    is_percent_encoded(text).then(|| percent_decode_str(text).decode_utf8().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        let key = "a.b/0190/héllo %1.txt";
        assert_eq!(
            parse(&artifact(key)),
            Some(ResourceUri::Artifact(key.into()))
        );
        assert_eq!(parse(&pack("a.b")), Some(ResourceUri::Pack("a.b".into())));
        assert_eq!(parse("helmdeck://guide"), Some(ResourceUri::Guide));
        let id = JobId::parse(&"0a".repeat(16)).unwrap();
        assert_eq!(parse(&job(&id)), Some(ResourceUri::Job(id.as_str().into())));
        assert_eq!(parse("helmdeck://jobs"), Some(ResourceUri::Jobs));
        assert_eq!(parse(PLANS), Some(ResourceUri::Plans));
        assert_eq!(parse(RECALL), Some(ResourceUri::Recall("work".into())));
        assert_eq!(
            parse("helmdeck://seam/recall/bug%66ix"),
            Some(ResourceUri::Recall("bugfix".into()))
        );
        for other in [
            "helmdeck://",
            "helmdeck://packs/",
            "helmdeck://x",
            "file:///etc",
            "helmdeck://packs/%zz",
            "helmdeck://seam",
            "helmdeck://seam/recall/",
            "helmdeck://seam/x",
            "helmdeck://packs/%+1",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
