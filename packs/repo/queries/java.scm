; What Java defines and uses. Constructors are left out: they carry the name of their class.
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(annotation_type_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(method_declaration name: (identifier) @name) @method

(method_invocation name: (identifier) @reference)
(method_reference (identifier) @reference .)
(type_identifier) @reference
(marker_annotation name: (identifier) @reference)
(annotation name: (identifier) @reference)
((identifier) @reference (#match? @reference "^[A-Z]"))
