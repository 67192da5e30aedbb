//! The user agents that bot-detection refuses without a configuration.
//!
//! The regexes are those of ua-parser (github.com/ua-parser/uap-core, Apache License 2.0, version of 2020) for the families
//! of Kong's list, without their groups and without what may be absent at the beginning or the end of a match. They are
//! matched together, in one pass over the text.

/// Families with a version, and libraries.
pub(super) const FAMILIES: [&str; 10] = [
    r"Pingdom\.com_bot_version_\d+\.\d",
    r"facebookexternalhit/\d+\.\d",
    r"Google.*/\+/web/snippet",
    r"Twitterbot/\d+\.\d",
    r"\b(?:Boto3?|JetS3t|aws-(?:cli|sdk-(?:cpp|go|java|nodejs|ruby2?|dotnet-(?:\d{1,2}|core)))|s3fs)/\d+\.\d",
    r" PTST/\d+(?:\.\d+)?$",
    r"/(?:(?:Ant-)?Nutch|[A-z]+[Bb]ot|[A-z]+[Ss]pider|Axtaris|fetchurl|Isara|ShopSalad|Tailsweep)[ \-]\d",
    concat!(
        r"\b(?:008|Altresium|Argus|BaiduMobaider|BoardReader|DNSGroup|DataparkSearch|EDI|Goodzer|Grub|INGRID|",
        r"Infohelfer|LinkedInBot|LOOQ|Nutch|OgScrper|PathDefender|Peew|PostPost|Steeler|Twitterbot|VSE|WebCrunch|",
        r"WebZIP|Y!J-BR[A-Z]|YahooSeeker|envolk|sproose|wminer)/\d",
    ),
    r"MSIE \d+\.\d+(?:[a-z]\d|[a-z]|);.* MSIECrawler",
    concat!(
        r"Google-HTTP-Java-Client|Apache-HttpClient|Go-http-client|scalaj-http|http%20client|Python-urllib|",
        r"HttpMonitor|TLSProber|WinHTTP|JNLP|okhttp|aihttp|reqwest|axios|unirest-(?:java|python|ruby|nodejs|php|net)",
    ),
];

/// Words that programs have in their names.
pub(super) const WORDS: [&str; 3] = [
    r"(?:[Aa]rchiver|[Ii]ndexer|[Ss]craper|[Bb]ot|[Ss]pider|[Cc]rawl[a-z]{0,50})[/ ]\d",
    // Cubot makes telephones.
    r"[^C][^Uu][Bb]ot\b",
    r"[Ss][Pp][Ii][Dd][Ee][Rr]|[Ss]crape|[Cc][Rr][Aa][Ww][Ll]",
];

/// Names of programs.
#[rustfmt::skip]
pub(super) const NAMES: [&str; 181] = [
    r"CSimpleSpider", r"Cityreview Robot", r"CrawlDaddy", r"CrawlFire", r"Finderbots", r"Index crawler",
    r"Job Roboter", r"KiwiStatus Spider", r"Lijit Crawler", r"QuerySeekerSpider", r"ScollSpider", r"Trends Crawler",
    r"USyd-NLP-Spider", r"SiteCat Webbot", r"BotName\/\$BotVersion", r"123metaspider-Bot", r"1470\.net crawler",
    r"50\.nu", r"8bo Crawler Bot", r"Aboundex", r"Accoona-[A-z]{1,30}-Agent", r"AdsBot-Google", r"altavista",
    r"AppEngine-Google", r"archive.{0,30}\.org_bot", r"archiver", r"Ask Jeeves",
    r"[Bb]ai[Dd]u[Ss]pider(?:-[A-Za-z]{1,30})", r"bingbot", r"BingPreview", r"blitzbot", r"BlogBridge", r"Bloglovin",
    r"BoardReader Blog Indexer", r"BoardReader Favicon Fetcher", r"boitho\.com-dc", r"BotSeer", r"BUbiNG",
    r"\b\w{0,30}favicon\w{0,30}\b", r"\bYeti", r"Catchpoint", r"[Cc]harlotte", r"Checklinks", r"clumboot",
    r"Comodo HTTP\(S\) Crawler", r"Comodo-Webinspector-Crawler", r"ConveraCrawler", r"CRAWL-E", r"CrawlConvera",
    r"Daumoa", r"Feed Seeker Bot", r"Feedbin", r"findlinks", r"Flamingo_SearchEngine", r"FollowSite Bot", r"furlbot",
    r"Genieo", r"gigabot", r"GomezAgent", r"gonzo1", r"Googlebot", r"Google SketchUp", r"grub-client", r"gsa-crawler",
    r"heritrix", r"HiddenMarket", r"holmes", r"HooWWWer", r"htdig", r"ia_archiver", r"ICC-Crawler", r"Icarus6j",
    r"ichiro", r"IconSurf", r"IlTrovatore", r"InfuzApp", r"Innovazion Crawler", r"InternetArchive",
    r"IP2[a-z]{1,30}Bot", r"jbot\b", r"KaloogaBot", r"Kraken", r"Kurzor", r"larbin", r"LEIA", r"LesnikBot",
    r"Linguee Bot", r"LinkAider", r"LinkedInBot", r"Lite Bot", r"Llaut", r"lycos", r"Mail\.RU_Bot", r"masscan",
    r"masidani_bot", r"Mediapartners-Google", r"Microsoft .{0,30} Bot", r"mogimogi", r"mozDex", r"MJ12bot", r"msnbot",
    r"msrbot", r"Mtps Feed Aggregation System", r"netresearch", r"Netvibes", r"NewsGator", r"^NING", r"Nutch",
    r"Nymesis", r"ObjectsSearch", r"OgScrper", r"Orbiter", r"OOZBOT", r"PagePeeker", r"PagesInventory",
    r"PaxleFramework", r"Peeplo Screenshot Bot", r"PlantyNet_WebRobot", r"Pompos", r"Qwantify", r"Read%20Later",
    r"Reaper", r"RedCarpet", r"Retreiver", r"Riddler", r"Rival IQ", r"scooter", r"Scrapy", r"Scrubby", r"searchsight",
    r"seekbot", r"semanticdiscovery", r"SemrushBot", r"Simpy", r"SimplePie", r"SEOstats", r"SimpleRSS", r"SiteCon",
    r"Slackbot-LinkExpanding", r"Slack-ImgProxy", r"Slurp", r"snappy", r"Speedy Spider", r"Squrl Java", r"Stringer",
    r"TheUsefulbot", r"ThumbShotsBot", r"Thumbshots\.ru", r"Tiny Tiny RSS", r"Twitterbot", r"WhatsApp", r"URL2PNG",
    r"Vagabondo", r"VoilaBot", r"^vortex", r"Votay bot", r"^voyager", r"WASALive\.Bot", r"Web-sniffer", r"WebThumb",
    r"WeSEE:[A-z]{1,30}", r"WhatWeb", r"WIRE", r"WordPress", r"Wotbox", r"www\.almaden\.ibm\.com",
    r"Xenu(?:.s|) Link Sleuth", r"Xerka [A-z]{1,30}Bot", r"yacy", r"YahooSeeker", r"Yahoo! Slurp", r"Yandex\w{1,30}",
    r"YodaoBot", r"YottaaMonitor", r"Yowedo", r"^Zao", r"^Zao-Crawler", r"ZeBot_www\.ze\.bz", r"ZooShot", r"ZyBorg",
    r"ArcGIS Hub Indexer",
];
