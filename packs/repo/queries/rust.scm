; What Rust defines and uses. A capture is named after the kind of symbol; where two patterns match one name, the upper wins.
; `@ignored` is a definition that is left out; a capture with `_` is for a predicate only.
; What implements a trait repeats the trait, and tests tell nothing about the whole: both are left out.
(impl_item trait: (_) body: (declaration_list (function_item name: (identifier) @name) @ignored))
(impl_item trait: (_) body: (declaration_list (type_item name: (type_identifier) @name) @ignored))
(impl_item trait: (_) body: (declaration_list (const_item name: (identifier) @name) @ignored))
(mod_item name: (identifier) @_module body: (declaration_list (_ name: (_) @name) @ignored) (#eq? @_module "tests"))
(impl_item body: (declaration_list (function_item name: (identifier) @name) @method))
(trait_item body: (declaration_list (function_item name: (identifier) @name) @method))
(trait_item body: (declaration_list (function_signature_item name: (identifier) @name) @method))
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(struct_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(union_item name: (type_identifier) @name) @union
(trait_item name: (type_identifier) @name) @trait
(type_item name: (type_identifier) @name) @type
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @constant
(macro_definition name: (identifier) @name) @macro

; Names of the prelude are not the project's, even where the project has a namesake.
((type_identifier) @reference (#not-any-of? @reference "Box" "Option" "Self" "String" "Vec"))
(call_expression function: (identifier) @reference)
(call_expression function: (field_expression field: (field_identifier) @reference))
(generic_function function: (identifier) @reference)
(generic_function function: (field_expression field: (field_identifier) @reference))
(scoped_identifier path: (identifier) @reference)
(scoped_identifier name: (identifier) @reference)
(use_list (identifier) @reference)
(macro_invocation macro: (identifier) @reference)
; Inside a macro call the grammar sees tokens only: a name before a parenthesis is taken for a call, unless it is one of
; those that attributes are made of.
((token_tree (identifier) @reference . (token_tree))
  (#not-any-of? @reference "all" "allow" "any" "cfg" "cfg_attr" "derive" "doc" "expect" "not" "Err" "Ok" "Some"))
((identifier) @reference (#match? @reference "^[A-Z][A-Z0-9_]+$"))
