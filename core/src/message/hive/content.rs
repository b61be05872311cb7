//! What a unit of knowledge says.

use alloc::string::String;
use alloc::vec::Vec;

use serde::Serialize;

use super::super::object::each;
use super::super::{Object, RawValue};
use super::unit::nested;

/// The content of a unit, by its type.
///
/// Texts are unbounded but for the frame that they came in: who keeps, shows or runs one bounds it first.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are the reference's keys, which say what they are")]
pub enum Content {
    /// What to do where a tool is used.
    Pattern {
        tool: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        command_pattern: Option<String>,
        preferred_action: String,
        accept_rate: f64,
        sample_count: u32,
        conditions: Vec<String>,
    },
    /// How often a tool was right.
    ToolAccuracy { tool: String, total: u32, correct: u32, confidence_threshold: f64 },
    /// Something that changes with time.
    Temporal { description: String, strength: f64 },
    /// Something noticed.
    Insight {
        category: String,
        severity: String,
        summary: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        suggestion: Option<String>,
    },
    /// A rule that proved itself.
    PromotedRule { rule: String, source_type: String },
    /// A skill for an agent.
    Skill {
        name: String,
        description: String,
        version: String,
        body: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        requires: Option<Requires>,
    },
    /// A command for an agent.
    Command {
        name: String,
        description: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        args: Option<String>,
        body: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        requires: Option<Requires>,
    },
    /// A hook's configuration.
    HookConfig {
        event: String,
        matcher: String,
        description: String,
        config_json: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        requires: Option<Requires>,
    },
    /// How an approach went.
    ApproachOutcome {
        approach_ref: String,
        success_rate: f64,
        sample_count: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        median_cost_usd: Option<f64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        median_duration_ms: Option<u64>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        conditions: Vec<String>,
    },
    /// Several approaches to one problem.
    ApproachCluster { problem_key: String, variants: Vec<Variant> },
}

/// One approach of a cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Variant {
    /// The approach.
    pub approach_summary: String,
    /// When it applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// How often it was seen.
    pub evidence: u32,
    /// Who saw it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contributing_peers: Vec<String>,
    /// The unit that says how it went.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome_ref: Option<String>,
}

/// What a skill, command or hook needs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Requires {
    /// Programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cli: Vec<String>,
    /// Operating systems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub os: Vec<String>,
    /// The least version of the peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_version: Option<String>,
    /// Agents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
}

impl Content {
    /// Reads a content; `None` with an unknown type, a missing key or one of another type.
    #[must_use]
    pub fn parse(content: &RawValue) -> Option<Self> {
        match &*Object::new(content, &["type"]).str("type")? {
            "pattern" => Self::parse_pattern(content),
            "tool_accuracy" => {
                let object = Object::new(content, &["tool", "total", "correct", "confidence_threshold"]);
                Some(Self::ToolAccuracy {
                    tool: object.string("tool")?,
                    total: object.u32("total")?,
                    correct: object.u32("correct")?,
                    confidence_threshold: object.f64("confidence_threshold")?,
                })
            }
            "temporal" => {
                let object = Object::new(content, &["description", "strength"]);
                Some(Self::Temporal {
                    description: object.string("description")?,
                    strength: object.f64("strength")?,
                })
            }
            "insight" => {
                let object = Object::new(content, &["category", "severity", "summary", "suggestion"]);
                Some(Self::Insight {
                    category: object.string("category")?,
                    severity: object.string("severity")?,
                    summary: object.string("summary")?,
                    suggestion: object.optional("suggestion")?,
                })
            }
            "promoted_rule" => {
                let object = Object::new(content, &["rule", "source_type"]);
                Some(Self::PromotedRule {
                    rule: object.string("rule")?,
                    source_type: object.string("source_type")?,
                })
            }
            "skill" => {
                let object = Object::new(content, &["name", "description", "version", "body", "requires"]);
                Some(Self::Skill {
                    name: object.string("name")?,
                    description: object.string("description")?,
                    version: object.string("version")?,
                    body: object.string("body")?,
                    requires: nested(&object, "requires", Requires::parse)?,
                })
            }
            "command" => {
                let object = Object::new(content, &["name", "description", "args", "body", "requires"]);
                Some(Self::Command {
                    name: object.string("name")?,
                    description: object.string("description")?,
                    args: object.optional("args")?,
                    body: object.string("body")?,
                    requires: nested(&object, "requires", Requires::parse)?,
                })
            }
            "hook_config" => {
                let keys = &["event", "matcher", "description", "config_json", "requires"];
                let object = Object::new(content, keys);
                Some(Self::HookConfig {
                    event: object.string("event")?,
                    matcher: object.string("matcher")?,
                    description: object.string("description")?,
                    config_json: object.string("config_json")?,
                    requires: nested(&object, "requires", Requires::parse)?,
                })
            }
            "approach_outcome" => Self::parse_outcome(content),
            "approach_cluster" => {
                let object = Object::new(content, &["problem_key", "variants"]);
                Some(Self::ApproachCluster {
                    problem_key: object.string("problem_key")?,
                    variants: Variant::list(object.raw("variants")?)?,
                })
            }
            _ => None,
        }
    }

    fn parse_pattern(content: &RawValue) -> Option<Self> {
        let object = Object::new(
            content,
            &["tool", "command_pattern", "preferred_action", "accept_rate", "sample_count", "conditions"],
        );
        Some(Self::Pattern {
            tool: object.string("tool")?,
            command_pattern: object.optional("command_pattern")?,
            preferred_action: object.string("preferred_action")?,
            accept_rate: object.f64("accept_rate")?,
            sample_count: object.u32("sample_count")?,
            conditions: object.get("conditions")?,
        })
    }

    fn parse_outcome(content: &RawValue) -> Option<Self> {
        let object = Object::new(
            content,
            &[
                "approach_ref",
                "success_rate",
                "sample_count",
                "median_cost_usd",
                "median_duration_ms",
                "conditions",
            ],
        );
        Some(Self::ApproachOutcome {
            approach_ref: object.string("approach_ref")?,
            success_rate: object.f64("success_rate")?,
            sample_count: object.u32("sample_count")?,
            median_cost_usd: object.optional_f64("median_cost_usd")?,
            median_duration_ms: object.optional("median_duration_ms")?,
            conditions: object.optional("conditions")?.unwrap_or_default(),
        })
    }
}

impl Variant {
    /// All variants of a list, or none of them: half a cluster is another cluster.
    fn list(list: &RawValue) -> Option<Vec<Self>> {
        let mut variants = Some(Vec::new());
        let is_array = each(list, |variant| {
            variants = variants.take().zip(Self::parse(variant)).map(|(mut variants, variant)| {
                variants.push(variant);
                variants
            });
        });
        variants.filter(|_| is_array)
    }

    fn parse(variant: &RawValue) -> Option<Self> {
        let keys = &["approach_summary", "conditions", "evidence", "contributing_peers", "outcome_ref"];
        let object = Object::new(variant, keys);
        Some(Self {
            approach_summary: object.string("approach_summary")?,
            conditions: object.optional("conditions")?.unwrap_or_default(),
            evidence: object.u32("evidence")?,
            contributing_peers: object.optional("contributing_peers")?.unwrap_or_default(),
            outcome_ref: object.optional("outcome_ref")?,
        })
    }
}

impl Requires {
    fn parse(requires: &RawValue) -> Option<Self> {
        let object = Object::new(requires, &["cli", "os", "min_version", "agents"]);
        Some(Self {
            cli: object.defaulted("cli")?,
            os: object.defaulted("os")?,
            min_version: object.optional("min_version")?,
            agents: object.defaulted("agents")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn raw(text: &str) -> &RawValue {
        serde_json::from_str(text).unwrap()
    }

    /// A content of each type with all of its keys, and those of them that may be absent.
    const ALL: [(&str, &[&str]); 10] = [
        (
            r#"{"type":"pattern","tool":"t","command_pattern":"c","preferred_action":"a","accept_rate":0.5,"sample_count":1,"conditions":["x"]}"#,
            &["command_pattern"],
        ),
        (r#"{"type":"tool_accuracy","tool":"t","total":2,"correct":1,"confidence_threshold":0.5}"#, &[]),
        (r#"{"type":"temporal","description":"d","strength":0.5}"#, &[]),
        (
            r#"{"type":"insight","category":"c","severity":"s","summary":"t","suggestion":"u"}"#,
            &["suggestion"],
        ),
        (r#"{"type":"promoted_rule","rule":"r","source_type":"s"}"#, &[]),
        (
            r#"{"type":"skill","name":"n","description":"d","version":"1","body":"b","requires":{"cli":["git"],"os":["linux"],"min_version":"1","agents":["a"]}}"#,
            &["requires"],
        ),
        (
            r#"{"type":"command","name":"n","description":"d","args":"a","body":"b","requires":{}}"#,
            &["args", "requires"],
        ),
        (
            r#"{"type":"hook_config","event":"e","matcher":"m","description":"d","config_json":"{}","requires":{}}"#,
            &["requires"],
        ),
        (
            r#"{"type":"approach_outcome","approach_ref":"a","success_rate":0.5,"sample_count":1,"median_cost_usd":0.5,"median_duration_ms":7,"conditions":["x"]}"#,
            &["median_cost_usd", "median_duration_ms", "conditions"],
        ),
        (
            r#"{"type":"approach_cluster","problem_key":"p","variants":[{"approach_summary":"a","conditions":["x"],"evidence":1,"contributing_peers":["p"],"outcome_ref":"o"},{"approach_summary":"b","evidence":2}]}"#,
            &[],
        ),
    ];

    #[test]
    fn every_type_is_written_as_it_is_read() {
        for (text, _) in ALL {
            let content = Content::parse(raw(text)).unwrap();
            assert_eq!(serde_json::to_string(&content).unwrap(), text);
        }
    }

    #[test]
    fn a_key_may_be_absent_only_where_the_table_says_so_and_never_mistyped() {
        for (text, optional) in ALL {
            let value: serde_json::Value = serde_json::from_str(text).unwrap();
            for key in value.as_object().unwrap().keys() {
                let absent = text.replacen(&format!("\"{key}\":"), "\"_\":", 1);
                assert_eq!(
                    Content::parse(raw(&absent)).is_some(),
                    optional.contains(&key.as_str()),
                    "{absent}"
                );
                let mistyped = format!("{},\"{key}\":[[]]}}", &text[..text.len() - 1]);
                assert_eq!(Content::parse(raw(&mistyped)), None, "{mistyped}");
            }
        }
    }

    #[test]
    fn an_unknown_type_has_no_content() {
        for bad in [r#"{"type":"new"}"#, "{}", "[]", "null", r#"{"type":7}"#] {
            assert_eq!(Content::parse(raw(bad)), None, "{bad}");
        }
    }

    #[test]
    fn a_bad_variant_voids_its_cluster() {
        for variants in ["7", r#"[{"approach_summary":"a"}]"#, r#"[{"approach_summary":"a","evidence":1},7]"#]
        {
            let text =
                format!("{{\"type\":\"approach_cluster\",\"problem_key\":\"p\",\"variants\":{variants}}}");
            assert_eq!(Content::parse(raw(&text)), None, "{variants}");
        }
    }
}
