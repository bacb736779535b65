; What C defines and uses. A prototype counts as a definition: the header is where readers look.
(function_definition declarator: (function_declarator declarator: (identifier) @name)) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @function
(declaration declarator: (function_declarator declarator: (identifier) @name)) @function
(declaration declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @function
(struct_specifier name: (type_identifier) @name body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @union
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(type_definition declarator: (type_identifier) @name) @type
; Without a value it is an include guard.
(preproc_def name: (identifier) @name value: (_)) @constant
(preproc_function_def name: (identifier) @name) @macro

(call_expression function: (identifier) @reference)
(call_expression function: (field_expression field: (field_identifier) @reference))
(type_identifier) @reference
((identifier) @reference (#match? @reference "^[A-Z][A-Z0-9_]+$"))
