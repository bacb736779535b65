//! The schemas are those of the types.

use helmdeck_forge::issues::{AddIssue, ListIssues, SetIssue, ShowIssue};
use helmdeck_forge::verb::Verb;

use crate::schemas::Schemas;

fn add<V: Verb>(schemas: &mut Schemas) {
    schemas.add::<V, V::Output>(V::NAME);
}

#[test]
fn file_has_the_schemas_of_the_types() {
    let mut schemas = Schemas::default();
    add::<AddIssue>(&mut schemas);
    add::<ListIssues>(&mut schemas);
    add::<SetIssue>(&mut schemas);
    add::<ShowIssue>(&mut schemas);
    schemas.check("forge");
}
