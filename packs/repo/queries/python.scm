; What Python defines and uses.
(class_definition body: (block (function_definition name: (identifier) @name) @method))
(class_definition body: (block (decorated_definition definition: (function_definition name: (identifier) @name) @method)))
(function_definition name: (identifier) @name) @function
(class_definition name: (identifier) @name) @class
(module (expression_statement (assignment left: (identifier) @name) @constant))

(call function: (identifier) @reference)
(call function: (attribute attribute: (identifier) @reference))
(class_definition superclasses: (argument_list (identifier) @reference))
(class_definition superclasses: (argument_list (attribute attribute: (identifier) @reference)))
(decorator (identifier) @reference)
(decorator (attribute attribute: (identifier) @reference))
(type (identifier) @reference)
(type (generic_type (identifier) @reference))
(import_from_statement name: (dotted_name (identifier) @reference))
((identifier) @reference (#match? @reference "^[A-Z]"))
