//! Greetings: messages that say hello and ask for nothing.

/// Words of greetings, in lower case, in the languages that most people write.
///
/// A message of these words alone asks for nothing.
#[rustfmt::skip]
const WORDS: [&str; 116] = [
    // English
    "hi", "hello", "hey", "hiya", "howdy", "yo", "greetings", "welcome", "good", "morning", "afternoon", "evening", "day",
    "there", "all", "everyone", "everybody", "folks", "team", "again", "how", "are", "you", "is", "it", "going", "doing",
    "today", "sup", "nice", "to", "meet", "thanks", "thank", "ok", "okay", "ping", "dear",
    "assistant", "bot",
    // German
    "hallo", "moin", "servus", "guten", "gute", "morgen", "tag", "abend", "grüß", "gruß", "gott", "dich", "wie", "geht",
    "es", "dir", "ihnen", "liebe", "lieber", "zusammen", "danke", "na",
    // French, Italian, Spanish, Portuguese
    "bonjour", "bonsoir", "salut", "coucou", "ça", "va", "merci", "ciao", "salve", "buongiorno", "buonasera", "hola",
    "buenos", "buenas", "días", "dias", "tardes", "noches", "qué", "tal", "gracias", "olá", "ola", "oi", "bom", "dia",
    "boa", "tarde", "noite",
    // Dutch, Swedish, Danish, Norwegian, Finnish, Polish, Czech
    "hoi", "goedemorgen", "goedendag", "hej", "hejsan", "hei", "moi", "terve", "cześć", "czesc", "witam", "ahoj", "dobrý",
    "dobry", "den",
    // Turkish, Arabic, Hebrew, Hindi, Russian, Ukrainian
    "merhaba", "selam", "مرحبا", "السلام", "عليكم", "שלום", "नमस्ते", "привет", "здравствуйте", "привіт",
];

/// Greetings of scripts without spaces.
const PHRASES: [&str; 12] = [
    "你好",
    "您好",
    "大家好",
    "早上好",
    "晚上好",
    "こんにちは",
    "こんばんは",
    "おはよう",
    "おはようございます",
    "안녕",
    "안녕하세요",
    "สวัสดี",
];

/// Returns whether a message is a greeting, or has no word at all.
pub(super) fn is_greeting(message: &str) -> bool {
    let mut words = message
        .split(|character: char| !is_letter(character))
        .filter(|word| !word.is_empty());
    words.all(|word| {
        let word = word.to_lowercase();
        WORDS.contains(&word.as_str()) || PHRASES.contains(&word.as_str())
    })
}

/// Returns whether a character is part of a word; the marks of some scripts are.
fn is_letter(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '\u{900}'..='\u{e7f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_is_told_from_request() {
        for greeting in [
            "hi",
            "Hello there!",
            "Good morning, how are you today?",
            "👋",
            "",
            " \n",
            "Hallo zusammen",
            "Guten Tag!",
            "¡Hola!",
            "Bonjour, ça va ?",
            "你好！",
            "こんにちは。",
            "안녕하세요",
            "नमस्ते",
            "สวัสดี",
            "Привет!",
            "?!",
        ] {
            assert!(is_greeting(greeting), "{greeting}");
        }
        for request in [
            "hi, port the parser",
            "Hello world in Rust",
            "42",
            "你好，请修复构建",
            "Good tests are due",
            "Hallo, wie spät ist es?",
            "fix it",
            "What is AI?",
            "What day is it today?",
            "GOAL: port the parser",
            "what is up with CI",
            "今日の予定は",
        ] {
            assert!(!is_greeting(request), "{request}");
        }
    }
}
