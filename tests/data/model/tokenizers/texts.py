"""The texts that tokenizers are compared on: as bytes, since some are no UTF-8."""

PROSE = """The pilot, Zoë, couldn't believe it: 1234567 passengers had boarded by 3.30pm! She's said they'll wait.
Der Fluß führt im März 2024 kein Hochwasser; Übergänge bleiben geöffnet. Straßenbahn, Maß, naïve façade.
Où est la bibliothèque ? « Là-bas », répondit-il, à 50 % près. ¿Quién sabe? ¡Mañana será otro día!
Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак їсть яблуко №5.
今日は良い天気ですね。東京タワーは333メートルです。我们明天去北京，好吗？한국어 문장도 있습니다.
السلام عليكم، كيف حالك اليوم؟ ٣٤٥ ريال. שלום עולם. नमस्ते दुनिया, हिन्दी में १२३. สวัสดีชาวโลก
Ελληνικά: Ο γρήγορος αλεπού. Tiếng Việt có dấu: Nguyễn thích phở. Türkçe: İstanbul'da ığdır.
"""
CODE = """#include <vector>
template <typename T>\tstd::vector<T> f(int n) {\n\tfor (int i = 0; i < n; ++i) {\n\t\tx[i] += 0x1F * y[n-1-i];  // half
\t}\r\n    return {};\r\n}\r\n\r\n\r\ndef g(a_b, *args, **kw):\n    return f"{a_b!r:>10}" if args else None  # ok\n\n\n
<html><body class="a b">&nbsp;</body></html> SELECT * FROM t WHERE x >= 10 AND y != 'it''s'; {"k": [1, 22, 333]}
"""
EMOJI = "👋 hi 👨‍👩‍👧‍👦 family, flags 🇩🇪🇯🇵, skin 👍🏽👍🏿, ❤️‍🔥 ☃️ 1️⃣ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 𝒻𝓊𝓃 𝟙𝟚𝟛 ½ ⅷ ² 𐍈 \U0010ffff end"
SPACES = "a  b   c    d\t\te \n f\n\n\ng \u00a0h\u2003\u2003i\u3000j\u0085k\u2028l\u200bm   \n   n    \r\r\n  o"
ODD = ("'s 'S 'LL 'Re we'VE I'D x'm 'ſ ʼs ''' don''t \u0301 e\u0301 é n\u0303o ﬁ Å Å ｆｕｌｌ ･ ﾊﾝｶｸ "
       "0 00 000 0000 00000 1,000,000.00 1e-10 ٠١٢ ０１２ Ⅳ ④ a1b2 _x_ --- ... !!! ?! () [] ___ \u00ad \ufeff z\u0335")
SPECIAL = "<|endoftext|>x<|im_start|>user\n<bos>a <eos><s></s> <|unknown|> <pad><mask> [MASK]  <0x0A> ▁ ▁▁ a▁b <unk> <i>x</i>"

TEXTS = {
    "prose": PROSE.encode(),
    "code": CODE.encode(),
    "emoji": EMOJI.encode(),
    "spaces": SPACES.encode(),
    "odd": ODD.encode(),
    "special": SPECIAL.encode(),
    "empty": b"",
    "space": b" ",
    "broken": b"ok \xff\xfe bad \xc3( cut \xe2\x82 more \xf0\x9f\x98 surrogate \xed\xa0\x80 overlong \xc0\xaf \xe0\x80\xaf"
              b" high \xf4\x90\x80\x80 lone \x80\x80 \xf8\x88\x80\x80\x80 end \xe6\x97\xa5\xe6\x9c",
    "nul": b"a\x00b\x01\x7f\x1b[0m",
}
