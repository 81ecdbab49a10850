//! Boxes of a fragmented MP4 file with one video track (ISO/IEC 14496-12), as bytes.
//!
//! The file is `ftyp moov (moof mdat)* mfra`. Each fragment is complete by itself: a file that ends after any of them
//! plays.

use std::num::NonZeroU32;

use orinoco_core::{Codec, ColorMatrix, ColorRange};
use orinoco_pipeline::PixelAspect;
use shiguredo_mp4::boxes::{
    Brand, DinfBox, FtypBox, HdlrBox, MdhdBox, MdiaBox, MediaHeader, MehdBox, MfhdBox, MfraBox, MfroBox,
    MinfBox, MoofBox, MoovBox, MvexBox, MvhdBox, SampleEntry, StblBox, StcoBox, StscBox, StsdBox, StszBox,
    SttsBox, TfdtBox, TfhdBox, TfraBox, TfraEntry, TkhdBox, TrafBox, TrakBox, TrexBox, TrunBox, TrunSample,
    UnknownBox, VisualSampleEntryFields, VmhdBox,
};
use shiguredo_mp4::{
    BoxHeader, BoxSize, BoxType, Either, Encode, FixedPointNumber, LanguageCode, Mp4FileTime, SampleFlags,
};

use crate::i420::Colour;

/// Ticks per second of the video track: exact for 24, 25, 30, 50, 60 and NTSC rates.
pub(super) const TIMESCALE: u32 = 90_000;
/// Name of the track's handler, by which a later start recognises a file of this sink.
pub(super) const HANDLER: &[u8] = b"Orinoco video\0";
const TRACK: u32 = 1;
/// Bytes of a `mehd` box of version 1, which are reserved until the duration is known.
const DURATION_BYTES: usize = 20;
/// Sample flags of a key frame, and of a frame that depends on others (14496-12, 8.8.3.1).
const SYNC: SampleFlags = SampleFlags::new(0x0200_0000);
const NOT_SYNC: SampleFlags = SampleFlags::new(0x0101_0000);

/// Format of the file's frames.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub(super) codec: Codec,
    pub(super) width: u16,
    pub(super) height: u16,
    pub(super) aspect: PixelAspect,
    pub(super) colour: Colour,
}

/// One coded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CodedFrame {
    pub(super) ticks: u64,
    pub(super) is_key: bool,
    pub(super) bytes: Vec<u8>,
}

/// Start of a fragment: its time and its offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) ticks: u64,
    pub(super) offset: u64,
}

/// Makes the start of the file, `ftyp` and `moov`. `config` is the decoder's configuration (`avcC` or `hvcC` without
/// its header).
pub(super) fn head(track: &Track, config: &[u8]) -> Vec<u8> {
    let brand = match track.codec {
        Codec::H264 => Brand::AVC1,
        Codec::H265 => Brand::HVC1,
    };
    let compatible_brands = vec![Brand::ISOM, Brand::ISO5, Brand::ISO6, Brand::MP41, brand];
    let ftyp = FtypBox { major_brand: Brand::ISO5, minor_version: 0, compatible_brands };
    let mut bytes = encode(&ftyp);
    bytes.extend(encode(&moov(track, config)));
    bytes
}

/// Makes the duration that replaces the last bytes of the head. Returns its offset and its bytes.
pub(super) fn duration(head: &[u8], ticks: u64) -> (u64, Vec<u8>) {
    let mut bytes = box_header(*b"mehd", DURATION_BYTES);
    bytes.extend([1, 0, 0, 0]);
    bytes.extend(ticks.to_be_bytes());
    ((head.len() - DURATION_BYTES) as u64, bytes)
}

/// Makes a fragment, `moof` and `mdat`. The last frame is shown until `end`.
pub(super) fn fragment(number: u32, frames: &[CodedFrame], end: u64) -> Vec<u8> {
    let begins = frames.iter().map(|frame| frame.ticks);
    let ends = begins.clone().skip(1).chain([end]);
    let samples = frames.iter().zip(begins.zip(ends)).map(|(frame, (begin, end))| TrunSample {
        duration: Some(u32::try_from(end - begin).unwrap_or(u32::MAX)),
        size: Some(u32::try_from(frame.bytes.len()).expect("a coded frame is smaller than 4 GiB")),
        flags: Some(if frame.is_key { SYNC } else { NOT_SYNC }),
        composition_time_offset: None,
    });
    let base_media_decode_time = frames.first().expect("a fragment has a frame").ticks;
    let run = TrunBox { data_offset: Some(0), first_sample_flags: None, samples: samples.collect() };
    let mut moof = MoofBox {
        mfhd_box: MfhdBox { sequence_number: number },
        traf_boxes: vec![TrafBox {
            tfhd_box: TfhdBox {
                track_id: TRACK,
                base_data_offset: None,
                sample_description_index: None,
                default_sample_duration: None,
                default_sample_size: None,
                default_sample_flags: None,
                duration_is_empty: false,
                default_base_is_moof: true,
            },
            tfdt_box: Some(TfdtBox { version: 1, base_media_decode_time }),
            trun_boxes: vec![run],
            unknown_boxes: Vec::new(),
        }],
        unknown_boxes: Vec::new(),
    };
    let payload: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    let data = box_header(*b"mdat", payload + 8);
    // The size of the offset does not depend on its value.
    let offset = encode(&moof).len() + data.len();
    moof.traf_boxes[0].trun_boxes[0].data_offset = Some(i32::try_from(offset).expect("a header is short"));
    let mut bytes = encode(&moof);
    bytes.reserve_exact(data.len() + payload);
    bytes.extend(data);
    frames.iter().for_each(|frame| bytes.extend_from_slice(&frame.bytes));
    bytes
}

/// Makes the table of fragments for seeking, `mfra`.
pub(super) fn index(entries: &[Entry]) -> Vec<u8> {
    let entries = entries.iter().map(|entry| TfraEntry {
        time: entry.ticks,
        moof_offset: entry.offset,
        traf_number: 1,
        trun_number: 1,
        sample_number: 1,
    });
    let tfra = TfraBox {
        version: 1,
        track_id: TRACK,
        length_size_of_traf_num: 0,
        length_size_of_trun_num: 0,
        length_size_of_sample_num: 0,
        entries: entries.collect(),
    };
    let mut mfra = MfraBox { tfra_boxes: vec![tfra], mfro_box: MfroBox { size: 0 } };
    mfra.mfro_box.size = u32::try_from(encode(&mfra).len()).expect("its entries are bounded");
    encode(&mfra)
}

fn moov(track: &Track, config: &[u8]) -> MoovBox {
    let timescale = NonZeroU32::new(TIMESCALE).expect("it is not zero");
    let (creation_time, modification_time) = (Mp4FileTime::default(), Mp4FileTime::default());
    let PixelAspect { width: wide, height: high } = track.aspect;
    let shown_width = u64::from(track.width) * u64::from(wide) / u64::from(high);
    let mdia_box = MdiaBox {
        mdhd_box: MdhdBox {
            creation_time,
            modification_time,
            timescale,
            duration: 0,
            language: LanguageCode::UNDEFINED,
        },
        hdlr_box: HdlrBox { handler_type: HdlrBox::HANDLER_TYPE_VIDE, name: HANDLER.to_vec() },
        minf_box: MinfBox {
            media_header: Some(MediaHeader::Vmhd(VmhdBox {
                graphicsmode: VmhdBox::DEFAULT_GRAPHICSMODE,
                opcolor: VmhdBox::DEFAULT_OPCOLOR,
            })),
            dinf_box: DinfBox::LOCAL_FILE,
            stbl_box: StblBox {
                stsd_box: StsdBox { entries: vec![sample_entry(track, config)] },
                stts_box: SttsBox { entries: Vec::new() },
                ctts_box: None,
                cslg_box: None,
                stsc_box: StscBox { entries: Vec::new() },
                stsz_box: StszBox::Variable { entry_sizes: Vec::new() },
                stco_or_co64_box: Either::A(StcoBox { chunk_offsets: Vec::new() }),
                stss_box: None,
                sdtp_box: None,
                unknown_boxes: Vec::new(),
            },
            unknown_boxes: Vec::new(),
        },
        unknown_boxes: Vec::new(),
    };
    let trak = TrakBox {
        tkhd_box: TkhdBox {
            flag_track_enabled: true,
            flag_track_in_movie: true,
            flag_track_in_preview: false,
            flag_track_size_is_aspect_ratio: false,
            creation_time,
            modification_time,
            track_id: TRACK,
            duration: 0,
            layer: TkhdBox::DEFAULT_LAYER,
            alternate_group: TkhdBox::DEFAULT_ALTERNATE_GROUP,
            volume: TkhdBox::DEFAULT_VIDEO_VOLUME,
            matrix: TkhdBox::DEFAULT_MATRIX,
            width: FixedPointNumber::new(i16::try_from(shown_width).unwrap_or(i16::MAX), 0),
            height: FixedPointNumber::new(i16::try_from(track.height).unwrap_or(i16::MAX), 0),
        },
        edts_box: None,
        mdia_box,
        unknown_boxes: Vec::new(),
    };
    let trex = TrexBox {
        track_id: TRACK,
        default_sample_description_index: 1,
        default_sample_duration: 0,
        default_sample_size: 0,
        default_sample_flags: SampleFlags::empty(),
    };
    let kept_free = unknown(*b"free", vec![0; DURATION_BYTES - 8]);
    MoovBox {
        mvhd_box: MvhdBox {
            creation_time,
            modification_time,
            timescale,
            duration: 0,
            rate: MvhdBox::DEFAULT_RATE,
            volume: MvhdBox::DEFAULT_VOLUME,
            matrix: MvhdBox::DEFAULT_MATRIX,
            next_track_id: TRACK + 1,
        },
        trak_boxes: vec![trak],
        // The last box of the head, so that the duration can replace its last bytes.
        mvex_box: Some(MvexBox {
            mehd_box: None::<MehdBox>,
            trex_boxes: vec![trex],
            unknown_boxes: vec![kept_free],
        }),
        unknown_boxes: Vec::new(),
    }
}

/// Makes the sample entry: the codec's name, the frames' size, and the boxes with the decoder's configuration, colour
/// and pixel aspect ratio. The configuration is the parser's, byte for byte.
fn sample_entry(track: &Track, config: &[u8]) -> SampleEntry {
    let (name, config_name) = match track.codec {
        Codec::H264 => (*b"avc1", *b"avcC"),
        Codec::H265 => (*b"hvc1", *b"hvcC"),
    };
    let visual = VisualSampleEntryFields {
        data_reference_index: VisualSampleEntryFields::DEFAULT_DATA_REFERENCE_INDEX,
        width: track.width,
        height: track.height,
        horizresolution: VisualSampleEntryFields::DEFAULT_HORIZRESOLUTION,
        vertresolution: VisualSampleEntryFields::DEFAULT_VERTRESOLUTION,
        frame_count: VisualSampleEntryFields::DEFAULT_FRAME_COUNT,
        compressorname: VisualSampleEntryFields::NULL_COMPRESSORNAME,
        depth: VisualSampleEntryFields::DEFAULT_DEPTH,
    };
    let mut payload = encode(&visual);
    payload.extend(encode(&unknown(config_name, config.to_vec())));
    payload.extend(encode(&unknown(*b"colr", colour(track.colour))));
    if track.aspect != PixelAspect::SQUARE {
        let terms = [track.aspect.width, track.aspect.height].map(u32::to_be_bytes);
        payload.extend(encode(&unknown(*b"pasp", terms.concat())));
    }
    SampleEntry::Unknown(unknown(name, payload))
}

/// Makes the `nclx` colour: primaries, transfer function, matrix (ISO/IEC 23091-2) and whether the range is full.
fn colour(colour: Colour) -> Vec<u8> {
    let (primaries, matrix) = match colour.matrix {
        ColorMatrix::Bt601 => (6, 6),
        ColorMatrix::Bt2020 => (9, 9),
        _ => (1u8, 1u8),
    };
    let full = if colour.range == ColorRange::Full { 0x80 } else { 0 };
    [b"nclx".as_slice(), &[0, primaries, 0, 1, 0, matrix, full]].concat()
}

fn unknown(name: [u8; 4], payload: Vec<u8>) -> UnknownBox {
    let box_type = BoxType::Normal(name);
    let box_size = BoxSize::with_payload_size(box_type, payload.len() as u64);
    UnknownBox { box_type, box_size, payload }
}

/// Makes the header of a box of `bytes`, which include the header.
fn box_header(name: [u8; 4], bytes: usize) -> Vec<u8> {
    let size = u32::try_from(bytes).expect("a fragment is smaller than 4 GiB");
    encode(&BoxHeader { box_type: BoxType::Normal(name), box_size: BoxSize::U32(size) })
}

/// Encodes a box. Boxes made here only have values that fit.
fn encode(value: &impl Encode) -> Vec<u8> {
    value.encode_to_vec().expect("every value of our boxes has its place")
}
