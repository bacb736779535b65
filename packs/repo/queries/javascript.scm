; What only JavaScript spells this way.
(class_declaration name: (identifier) @name) @class
(class name: (identifier) @name) @class
