//! Anonymous names of conversations.

use helmdeck_memory::Namespace;

/// Returns the digest that names a conversation's lock.
///
/// It is the same in every process, and contains no personal names.
pub(super) fn digest(namespace: &Namespace) -> String {
    // FNV-1a of 128 bits. In a collision, two conversations wait for each other; nothing worse.
    let mut hash = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128;
    let mut feed = |byte: u8| {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    };
    for part in [
        &*namespace.tenant,
        &*namespace.subject,
        namespace.session.as_deref().unwrap_or_default(),
    ] {
        part.bytes().for_each(&mut feed);
        // No UTF-8 text contains this byte, so two namespaces never feed the same bytes.
        feed(0xff);
    }
    format!("{hash:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_separates_parts_and_never_changes() {
        let of = |tenant, user, session| digest(&Namespace::new(tenant, user, Some(session)));
        assert_ne!(of("a", "bc", "d"), of("ab", "c", "d"));
        assert_ne!(of("a", "b", "cd"), of("a", "bc", "d"));
        assert_eq!(of("t", "u", "s").len(), 32);
        // Two versions of the program may summarise the same conversation.
        assert_eq!(of("t", "u", "s"), "6057e08eb13c64bf6f3e1a5382e9ba7e");
    }
}
