; What JavaScript and TypeScript share.
(method_definition name: (property_identifier) @name) @method
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression)]) @function
(assignment_expression
  left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function) (function_expression)]) @function
(program (lexical_declaration (variable_declarator name: (identifier) @name) @constant))
(program (export_statement declaration: (lexical_declaration (variable_declarator name: (identifier) @name) @constant)))

(call_expression function: (identifier) @reference)
(call_expression function: (member_expression property: (property_identifier) @reference))
(new_expression constructor: (identifier) @reference)
(new_expression constructor: (member_expression property: (property_identifier) @reference))
(import_specifier name: (identifier) @reference)
(import_clause (identifier) @reference)
((identifier) @reference (#match? @reference "^[A-Z]"))
