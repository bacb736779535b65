//! The GraphQL documents that are sent. They are fixed texts; everything else goes into variables.

/// Fields of an issue that are read.
macro_rules! issue {
    ($text:literal) => {
        concat!(
            $text,
            " fragment I on Issue { \
               id identifier previousIdentifiers title description url priority branchName createdAt updatedAt \
               completedAt archivedAt trashed \
               state { id name type } \
               team { key } \
               assignee { id name displayName email } \
               parent { identifier } \
               labels(first: 50) { nodes { id name } pageInfo { hasNextPage endCursor } } \
               inverseRelations(first: 50) { \
                 nodes { id type issue { id identifier } } pageInfo { hasNextPage endCursor } } }"
        )
    };
}

/// A fixed document, and the name of its operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Query {
    pub(super) name: &'static str,
    pub(super) text: &'static str,
    /// Whether it changes something.
    pub(super) writes: bool,
}

const fn read(name: &'static str, text: &'static str) -> Query {
    Query {
        name,
        text,
        writes: false,
    }
}

const fn write(name: &'static str, text: &'static str) -> Query {
    Query {
        name,
        text,
        writes: true,
    }
}

pub(super) const TEAM: Query = read(
    "Team",
    "query Team($key: String!) { \
       viewer { id name displayName email } \
       teams(filter: { key: { eqIgnoreCase: $key } }, first: 2) { nodes { id key name } } }",
);

pub(super) const STATES: Query = read(
    "States",
    "query States($team: ID!, $after: String) { \
       workflowStates(filter: { team: { id: { eq: $team } } }, first: 100, after: $after) { \
         nodes { id name type position } pageInfo { hasNextPage endCursor } } }",
);

pub(super) const LABELS: Query = read(
    "Labels",
    "query Labels($team: ID!, $after: String) { \
       issueLabels(filter: { isGroup: { eq: false }, or: [{ team: { null: true } }, { team: { id: { eq: $team } } }] }, \
                   first: 100, after: $after) { \
         nodes { id name } pageInfo { hasNextPage endCursor } } }",
);

pub(super) const USERS: Query = read(
    "Users",
    "query Users($after: String) { \
       users(filter: { active: { eq: true } }, first: 100, after: $after) { \
         nodes { id name displayName email } pageInfo { hasNextPage endCursor } } }",
);

pub(super) const ISSUES: Query = read(
    "Issues",
    issue!(
        "query Issues($filter: IssueFilter, $after: String) { \
           issues(filter: $filter, first: 50, after: $after, orderBy: updatedAt, includeArchived: true) { \
             nodes { ...I } pageInfo { hasNextPage endCursor } } }"
    ),
);

pub(super) const COMMENT: Query = read(
    "Comment",
    "query Comment($id: String!) { comment(id: $id) { id } }",
);

pub(super) const COMMENTS: Query = read(
    "Comments",
    "query Comments($filter: CommentFilter, $after: String) { \
       comments(filter: $filter, first: 100, after: $after, orderBy: updatedAt, includeArchived: true) { \
         nodes { id body createdAt editedAt archivedAt issue { id } \
                 user { id name displayName email } botActor { name } externalUser { name } } \
         pageInfo { hasNextPage endCursor } } }",
);

pub(super) const CREATE: Query = write(
    "Create",
    issue!(
        "mutation Create($input: IssueCreateInput!) { issueCreate(input: $input) { success issue { ...I } } }"
    ),
);

pub(super) const UPDATE: Query = write(
    "Update",
    issue!(
        "mutation Update($id: String!, $input: IssueUpdateInput!) { \
           issueUpdate(id: $id, input: $input) { success issue { ...I } } }"
    ),
);

pub(super) const ADD_COMMENT: Query = write(
    "AddComment",
    "mutation AddComment($input: CommentCreateInput!) { commentCreate(input: $input) { success comment { id } } }",
);

pub(super) const RELATE: Query = write(
    "Relate",
    "mutation Relate($input: IssueRelationCreateInput!) { \
       issueRelationCreate(input: $input) { success issueRelation { id } } }",
);

pub(super) const UNRELATE: Query = write(
    "Unrelate",
    "mutation Unrelate($id: String!) { issueRelationDelete(id: $id) { success } }",
);

pub(super) const ADD_LABEL: Query = write(
    "AddLabel",
    "mutation AddLabel($input: IssueLabelCreateInput!) { \
       issueLabelCreate(input: $input) { success issueLabel { id name } } }",
);
